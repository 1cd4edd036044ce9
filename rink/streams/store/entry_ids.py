"""Read the ids of stream entries, `milliseconds-sequence`.

Ids are ordered by both numbers.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

NONE = "0-0"
"""The id before every entry."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def order(entry_id: str) -> tuple[int, int]:
    """Return an id's key for sorting, since text sorts `10-0` before `9-0`."""
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence)


def seconds(entry_id: str) -> float:
    """Return when the entry was added, in seconds since 1970.

    The time comes from the clock of the Redis server.
    """
    return order(entry_id)[0] / 1000


def when(entry_id: str) -> str:
    """Return when the entry was added, as text in UTC.

    The time comes from the clock of the Redis server.
    """
    return datetime.fromtimestamp(seconds(entry_id), UTC).isoformat(timespec="milliseconds")


def ms_of(at: datetime) -> int:
    """Return a time in milliseconds since 1970; without a zone it is UTC."""
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - _EPOCH) // timedelta(milliseconds=1)


def is_id(text: str) -> bool:
    """Return whether Redis takes this text as an id: two 64-bit numbers."""
    has_form = re.fullmatch(r"\d{1,20}-\d{1,20}", text, re.ASCII) is not None
    return has_form and max(order(text)) < 2**64
