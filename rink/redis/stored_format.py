"""Define the format of Rink's data in Redis.

Each hash has the format as a field, from the first write on.
"""

from __future__ import annotations

import re
import shlex

from rink.errors import StateError

FORMAT = "1"
"""The format that this version reads and writes; `FORMAT` in lua/base.lua is the same."""

FIELD = "format"
"""The field with the format."""

STREAM_PREFIX = "rink:"
"""The prefix of every key of a stream."""

_OF_A_STREAM = re.compile(re.escape(STREAM_PREFIX) + r"\{[^{}/]+/[^{}/]+\}")
"""Match the key of a stream's hash; the keys of its partitions begin in the same way."""


def other_format(server: str, key: str, value: str) -> StateError:
    """Return the error for a hash whose format is `value`; "" if it has none."""
    has = f"has {FIELD} {value}" if value else f"has no {FIELD}"
    return StateError(
        f"Redis at {server}: key {key!r} {has}, and this version of Rink reads {FIELD} {FORMAT}: "
        "another version wrote it. Finish its work with that version. The following command "
        f"then removes what it left: {_removal(key)}",
        key=key,
    )


def _removal(key: str) -> str:
    """Return the command that removes a hash, or a stream with its own hash."""
    if not _OF_A_STREAM.fullmatch(key):
        return f"redis-cli UNLINK {shlex.quote(key)}"
    # The events of the stream also have that format.
    pattern = shlex.quote(f"{key.removesuffix('}')}[/}}]*")
    return f"redis-cli --scan --pattern {pattern} | xargs redis-cli UNLINK"
