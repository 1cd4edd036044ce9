"""Test the bytes of one answer with large entries, on a real Redis."""

import pytest
from streams_support import stepping

KILOBYTE = 1024


async def add(steps, *sizes):
    """Add an entry of each size; return their ids."""
    key = steps.place.names.stream
    return [(await steps.redis.xadd(key, {"d": b"x" * size})).decode() for size in sizes]


@pytest.mark.parametrize(
    ("sizes", "most", "count"),
    [
        ([100] * 50, 10 * KILOBYTE, 50),
        ([100] * 50, KILOBYTE, 10),
        ([KILOBYTE] * 3, KILOBYTE, 0),  # with its field's name the first one alone is larger
        ([10, 10, 5000, 10], KILOBYTE, 2),
        ([400, 400, 400], KILOBYTE, 2),
        ([], KILOBYTE, 0),
    ],
)
def test_take_brings_as_many_events_as_the_bytes_allow(rink_redis, sizes, most, count):
    @stepping
    async def test(steps, server):
        await steps.redis.flushall()
        ids = await add(steps, *sizes)
        taken = await steps.store.take(steps.place, 5, 40, max_bytes=most)
        assert [entry_id.decode() for entry_id, _ in taken.first] == ids[: min(count, 40)]

    test(rink_redis)


@stepping
async def test_entries_come_in_answers_of_few_bytes(steps, server):
    ids = await add(steps, *[300 * KILOBYTE] * 10, *[10] * 100)
    replies, ask = [], steps.redis.xrange

    async def counted(*given, **how):
        found = await ask(*given, **how)
        replies.append(sum(len(fields[b"d"]) for _, fields in found))
        return found

    steps.redis.xrange = counted
    key = steps.place.names.stream
    assert [entry_id.decode() async for entry_id, _ in steps.store.entries(key)] == ids
    assert sorted(replies)[-2] <= 1000 * KILOBYTE, "all but the first answer, which learns the size"
    assert len(replies) < 20
    behind = [entry_id.decode() async for entry_id, _ in steps.store.entries(key, ids[7])]
    assert behind == ids[8:]


@stepping
async def test_entries_are_those_that_were_there_when_it_began(steps, server):
    ids = await add(steps, *[10] * 30)
    key, seen = steps.place.names.stream, []
    async for entry_id, _ in steps.store.entries(key, most=10):
        seen.append(entry_id.decode())
        if len(seen) < 100:
            await add(steps, 10)
    assert seen == ids
    newest = [one.decode() async for one, _ in steps.store.entries(key, newest_first=True, most=7)]
    assert newest[-30:] == ids[::-1]
    assert len(newest) == len(set(newest)) == 60
