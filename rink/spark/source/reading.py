"""Reads a range of one partition in pages, and sees to it that nothing in it is missing. Runs on
executors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from rink.spark.options import StreamPlace
from rink.spark.redis_connection import RedisConnection
from rink.spark.source.group import tell_gone
from rink.spark.source.offsets import ANSWER_BYTES, PAGE
from rink.streams.store import entry_ids

Entry = tuple[bytes, list[bytes]]
"""An id, and names and values in turn."""

FIRST_PAGE = 100
"""So many entries the first page has: how large they are is not known before."""


@attrs.frozen
class Range:
    """What one task reads: the entries behind `start`, up to `end`.

    Attributes:
        removed: how many entries had ever been taken away when `start` was placed, where that is
            "0-0"; an entry shows by itself that nothing behind it is missing.
        group: events that were requeued for another one are passed over.
        strict: events that are gone are an error.
    """

    place: StreamPlace
    number: int
    start: str
    end: str
    removed: int
    group: str
    strict: bool


def pages(redis: RedisConnection, wanted: Range, size: int = PAGE) -> Iterator[list[Entry]]:
    """Yield the entries, page by page.

    A page is read from the entry that the last one ended with, that one included: as long as it is
    there, nothing behind it has been taken away, since trimming takes the oldest first. How many it
    has is told from the last one: as many as make `ANSWER_BYTES`, and `size` at most.

    Raises:
        StateError: some are gone, and the range is strict.
    """
    stream = wanted.place.names.partition(wanted.number).stream
    at, last = wanted.start, entry_ids.order(wanted.end)
    has_told, count = False, min(size, FIRST_PAGE)
    while entry_ids.order(at) < last:
        found, is_whole = _page(redis, stream, wanted, at, count)
        if not has_told and (not is_whole or not found):
            tell_gone(wanted.place, wanted.number, at, strict=wanted.strict)
            has_told = True
        if not found:
            return
        at, count = found[-1][0].decode(), min(size, _fitting(found))
        yield found


def _fitting(page: list[Entry]) -> int:
    """Return how many entries such as these make one answer."""
    some = page[:: len(page) // 100 + 1]  # to look at all would take a tenth of the time
    length = sum(len(text) for _, fields in some for text in fields)
    return max(1, ANSWER_BYTES * len(some) // max(1, length))


def _page(
    redis: RedisConnection, stream: str, wanted: Range, at: str, size: int
) -> tuple[list[Entry], bool]:
    """Return the entries behind `at`, and whether none of them can be missing."""
    if at != entry_ids.NONE:
        found = redis.repeated(lambda: _range(redis, stream, at, wanted.end, size + 1), stream)
        if found and found[0][0] == at.encode():
            return found[1:], True
        return found, False
    # In this order: what is taken away between the two is noticed.
    found = redis.repeated(lambda: _range(redis, stream, "-", wanted.end, size), stream)
    removed = int(redis.run("place", (stream,), "earliest", "latest")[3])
    return found, removed == wanted.removed


def _range(redis: RedisConnection, stream: str, start: str, end: str, count: int) -> list[Entry]:
    # Not xrange(): redis-py would make a dictionary of each, which takes half of the time.
    found: Any = redis.client.execute_command("XRANGE", stream, start, end, "COUNT", count)  # type: ignore[no-untyped-call]
    if redis.is_cluster:  # its nodes' clients make them all the same
        return [(at, [text for pair in fields.items() for text in pair]) for at, fields in found]
    return list(found)
