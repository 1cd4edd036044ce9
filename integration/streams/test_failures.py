"""Test slow processors and lost data on a real Redis.

The processors work in threads, or Redis is frozen, or set back to a copy.
"""

import asyncio
import time

import pytest
from failures_support import counted, is_done, logged, lost_data
from workers_support import QUICK, until, until_seen, until_true, with_shop

pytestmark = pytest.mark.waits


@with_shop(partition_count=1)
async def test_thread_that_takes_too_long_is_counted_and_goes_on(shop):
    """A thread that exceeds its time is counted and goes on.

    A thread gets its events together from the loop, and each event has its own time.
    """

    @shop.app.processor(shop.legs, timeout=4.0, **QUICK)
    def note(events):
        for leg in events.records():
            time.sleep({10: 5.0, 20: 5.0}.get(leg.n, 0.03))
            shop.seen.append((leg.who, leg.n))

    await shop.send(*range(60))
    async with shop.workers() as (start, _):
        worker = await start("a")
        await until_seen(shop, 60)
        await asyncio.sleep(4.5)  # nothing is in hand
        assert counted(worker, "timeouts_total") == 2
    assert shop.numbers("a") == list(range(60))
    assert await shop.dead("note", 0) == []


@with_shop(partition_count=1)
async def test_idle_processor_and_slow_commit_are_not_timed_out(shop):
    """An idle processor and a slow commit are not timed out.

    Neither the wait for events nor that for Redis counts as an event's time.
    """
    frozen = asyncio.Event()

    @shop.app.processor(shop.legs, timeout=1.5, commit="manual", **QUICK)
    async def note(events):
        async for leg in events.records():
            shop.seen.append((leg.who, leg.n))
            if leg.n == 1:
                shop.servers.server.freeze()
                frozen.set()
            await events.commit()

    async with shop.workers() as (start, _):
        worker = await start("a")
        await asyncio.sleep(2)
        await shop.send(1)
        await frozen.wait()
        await asyncio.sleep(2)
        shop.servers.server.thaw()
        await shop.send(2)
        await until_seen(shop, 2)
        assert counted(worker, "timeouts_total") == 0
    assert shop.numbers("a") == [1, 2]


@with_shop(partition_count=1)
async def test_restored_redis_with_continue_tells_what_comes_again(shop):
    go = asyncio.Event()

    @shop.app.processor(shop.legs, on_data_loss="continue", **QUICK)
    async def note(events):
        async for leg in events.records():
            shop.seen.append((leg.who, leg.n))
            if leg.n == 1:
                await go.wait()

    with logged() as records:
        async with shop.workers("a"):
            await shop.send(0, 1, 2)  # all of these are in the copy, and the first one is committed
            await until_seen(shop, 2)
            copy = await asyncio.to_thread(shop.servers.server.save_copy)
            go.set()
            await until_true(lambda: shop.are_committed("note", 3), what="committed")
            await shop.send(3)
            await until_seen(shop, 4)
            await until_true(lambda: shop.are_committed("note", 4), what="committed")
            await asyncio.to_thread(shop.servers.server.restore_copy, copy)
            await shop.send(4)
            await until(lambda: lost_data(records), 20)
            await until_true(lambda: is_done(shop, 5), 20, what="all committed")
    seen = shop.numbers("a")
    assert seen[:4] == [0, 1, 2, 3]
    assert seen[-2:] == [2, 4], "what lies in the copy comes again, in order"
    assert "are processed again" in lost_data(records)
