"""Ids of stream entries: `milliseconds-sequence`, ordered by both numbers."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

NONE = "0-0"
"""Before every entry."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def order(entry_id: str) -> tuple[int, int]:
    """Return what ids are ordered by; the text alone orders `10-0` before `9-0`."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)


def seconds(entry_id: str) -> float:
    """Return when the entry was added, in seconds since 1970 by the Redis server's clock."""
    return order(entry_id)[0] / 1000


def when(entry_id: str) -> str:
    """Return when the entry was added as text, in UTC by the Redis server's clock."""
    return datetime.fromtimestamp(seconds(entry_id), UTC).isoformat(timespec="milliseconds")


def ms_of(at: datetime) -> int:
    """Return a time in milliseconds since 1970; one without a zone is in UTC."""
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - _EPOCH) // timedelta(milliseconds=1)


def is_id(text: str) -> bool:
    """Return whether this is an id as Redis takes it.

    It has two numbers of 64 bits each.
    """
    is_made_so = re.fullmatch(r"\d{1,20}-\d{1,20}", text, re.ASCII) is not None
    return is_made_so and max(order(text)) < 2**64
