"""Settle the number of partitions of a stream among all its programs.

The first program writes the number of partitions and the fingerprint of the hasher to the stream's
hash. Every other program compares. With another number or hasher, its keys would go to other
partitions, and the order of each key would be lost.
"""

from __future__ import annotations

from typing import Any

import attrs

from rink.errors import StateError
from rink.redis import stored_format
from rink.redis.reply_text import text
from rink.redis.scripts import ScriptCall, compose, read

FIELDS = ("partitions", stored_format.FIELD, "hasher")
"""The fields of a stream's hash to read for `stored`."""


@attrs.frozen
class PartitionCount:
    """Hold the number of partitions of a stream, and its hasher's fingerprint.

    The fingerprint of the built-in hasher is "".
    """

    count: int
    hasher: str = ""

    def settle(self, key: str) -> ScriptCall:
        """Return the call that settles this in a stream's hash, unless settled."""
        script = compose([read(__package__, "settle")], "")
        return ScriptCall(script, [key], {"partitions": self.count, "hasher": self.hasher})


def stored(reply: Any, server: str, key: str) -> PartitionCount | None:
    """Return the settled values, or None if no program has settled them.

    `reply` has the values of `FIELDS` of the hash `key`.

    Raises:
        StateError: the hash has another format.
    """
    count, format_number, hasher = reply
    if count is None:
        return None
    if text(format_number) != stored_format.FORMAT:
        raise stored_format.other_format(server, key, text(format_number))
    return PartitionCount(int(count), text(hasher))


def check_same(
    stored: PartitionCount, declared: PartitionCount, stream: str, server: str, key: str
) -> None:
    """Compare this program's count and hasher with the settled values.

    The error names the stream as given, such as "stream 'orders'".

    Raises:
        StateError: the values differ.
    """
    lost_order = "keys would go to other partitions than before, and their order be lost. Use "
    if stored.count != declared.count:
        raise StateError(
            f"{stream} has partition_count={stored.count} in Redis at {server} (key {key!r}) and "
            f"partition_count={declared.count} in this program: {lost_order}{stored.count}, or "
            "another stream",
            key=key,
        )
    if stored.hasher != declared.hasher:
        raise StateError(
            f"{stream} has {_hasher(stored)} in Redis at {server} (key {key!r}) and "
            f"{_hasher(declared)} in this program: {lost_order}the same hasher= in all programs, "
            "or another stream",
            key=key,
        )


def _hasher(settled: PartitionCount) -> str:
    return f"a hasher of fingerprint {settled.hasher}" if settled.hasher else "the built-in hasher"
