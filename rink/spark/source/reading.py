"""Read a range of one partition in pages, and check that none is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs

from rink.redis.reply_text import text
from rink.spark.options import StreamPlace
from rink.spark.redis_connection import RedisConnection
from rink.spark.source.group import tell_gone
from rink.spark.source.offsets import ANSWER_BYTES, PAGE
from rink.streams.store import entry_ids

RangeEntry = tuple[bytes, list[bytes]]
"""An id, and a list of alternating names and values."""

FIRST_PAGE = 100
"""The number of entries in the first page, since their size is not known yet."""


@attrs.frozen
class Range:
    """Define the entries that one task reads: after `start`, up to `end`.

    Attributes:
        removed: if `start` is "0-0", the number of entries that had ever been removed when the
            range was planned. Any other `start` is an entry: while it exists, no later entry is
            missing.
        group: the query's group. Events that were requeued for another group are skipped.
        strict: True if missing events are an error.
    """

    place: StreamPlace
    number: int
    start: str
    end: str
    removed: int
    group: str
    strict: bool


def pages(redis: RedisConnection, wanted: Range, size: int = PAGE) -> Iterator[list[RangeEntry]]:
    """Yield the entries, page by page.

    A page is read from the last entry of the previous page. While that entry exists, no later entry
    was removed, since trimming removes the oldest first. The size of a page is computed from the
    previous page: as many entries as make `ANSWER_BYTES`, at most `size`.

    Raises:
        StateError: some entries are gone, and the range is strict.
    """
    stream = wanted.place.names.partition(wanted.number).stream
    at, last = wanted.start, entry_ids.order(wanted.end)
    has_reported, count = False, min(size, FIRST_PAGE)
    while entry_ids.order(at) < last:
        entries, is_whole = _page(redis, stream, wanted, at, count)
        if not has_reported and (not is_whole or not entries):
            tell_gone(wanted.place, wanted.number, at, strict=wanted.strict)
            has_reported = True
        if not entries:
            return
        at, count = text(entries[-1][0]), min(size, _fitting(entries))
        yield entries


def _fitting(page: list[RangeEntry]) -> int:
    """Return the number of entries of this size that make one answer."""
    some = page[:: len(page) // 100 + 1]  # looking at all would take a tenth of the time
    length = sum(len(value) for _, fields in some for value in fields)
    return max(1, ANSWER_BYTES * len(some) // max(1, length))


def _page(
    redis: RedisConnection, stream: str, wanted: Range, at: str, size: int
) -> tuple[list[RangeEntry], bool]:
    """Return the entries after `at`, and True if none of them can be missing."""
    if at != entry_ids.NONE:
        entries = redis.repeated(lambda: _range(redis, stream, at, wanted.end, size + 1), stream)
        if entries and entries[0][0] == at.encode():
            return entries[1:], True
        return entries, False
    # In this order, a removal between the two calls is noticed.
    entries = redis.repeated(lambda: _range(redis, stream, "-", wanted.end, size), stream)
    removed = int(redis.run("source/place", (stream,), start="earliest", end_at="latest")[3])
    return entries, removed == wanted.removed


def _range(
    redis: RedisConnection, stream: str, start: str, end: str, count: int
) -> list[RangeEntry]:
    # Do not call xrange(): redis-py would make a dict of each entry, which takes half of the time.
    reply: Any = redis.client.execute_command(  # type: ignore[no-untyped-call]
        "XRANGE", stream, start, end, "COUNT", count
    )
    if redis.is_cluster:  # the clients of its nodes make dicts nevertheless
        return [(at, [value for pair in fields.items() for value in pair]) for at, fields in reply]
    return list(reply)
