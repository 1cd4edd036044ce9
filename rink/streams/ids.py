"""Ids of stream entries: `milliseconds-sequence`, ordered by both numbers."""

from __future__ import annotations

NONE = "0-0"
"""Before every entry."""


def order(entry_id: str) -> tuple[int, int]:
    """Return what ids are ordered by; the text alone orders `10-0` before `9-0`."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)


def seconds(entry_id: str) -> float:
    """Return when the entry was added, in seconds since 1970 by the Redis server's clock."""
    return order(entry_id)[0] / 1000
