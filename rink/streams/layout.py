"""Define the format of what Rink stores in Redis.

Every hash has its number, from its first write on.
"""

from __future__ import annotations

import re
import shlex

from rink.errors import ConfigError, StateError
from rink.streams.names import PREFIX

FORMAT = "1"
"""The version of the layout in Redis; `FORMAT` in scripts/common.lua is the same."""

_OF_A_STREAM = re.compile(re.escape(PREFIX) + r"\{[^{}/]+/[^{}/]+\}")

FIELD = "format"
"""The field with the format; the hash of offsets has fields of processors beside it."""


def check_processor_name(name: str) -> str:
    """Return a processor's name, or raise a ConfigError if it is reserved."""
    if name == FIELD:
        raise ConfigError(
            f"a processor cannot be named {name!r}, since Rink has a field of this name in Redis beside those of "
            "processors: give it another name"
        )
    return name


def other_format(server: str, key: str, found: str) -> StateError:
    """Return the error for a hash of another layout.

    Args:
        server: the address of Redis.
        key: the hash.
        found: its format; "" if it has none.
    """
    has = f"has {FIELD} {found}" if found else f"has no {FIELD}"
    return StateError(
        f"Redis at {server}: key {key!r} {has}, and this version of Rink reads {FIELD} {FORMAT}: another version "
        f"wrote it. Finish its work with that version; then this removes what it left: {_removal(key)}",
        key=key,
    )


def _removal(key: str) -> str:
    """Return the command that removes a hash, or a stream with its own hash."""
    if not _OF_A_STREAM.fullmatch(key):
        return f"redis-cli UNLINK {shlex.quote(key)}"
    # Its events, too: they are of that layout.
    pattern = shlex.quote(f"{key.removesuffix('}')}[/}}]*")
    return f"redis-cli --scan --pattern {pattern} | xargs redis-cli UNLINK"
