"""Test when and for which owner hooks are called.

The hooks are of workers and partitions.
"""

import asyncio
import threading

import pytest
from workers_support import QUICK, Leg, pass_time, until, until_seen, until_true, with_shop

from rink.streams import Worker, WorkerHalted, admin


def hooked(shop, **given):
    """Declare `note` with hooks that write to `shop.seen`.

    Its legs are noted there, too.
    """

    async def start(owned):
        shop.seen.append(("start", owned.partition, owned.token))

    async def stop(owned):
        offset = (await shop.redis.hget(shop.names(owned.partition).offsets, "note")).decode()
        shop.seen.append(("stop", owned.partition, owned.token, offset))

    given = {"on_partition_start": start, "on_partition_stop": stop, **QUICK, **given}

    @shop.app.processor(shop.legs, **given)
    async def note(events):
        async for event in events:
            shop.seen.append((event.id, events.partition, events.token))

    return note


def events_of(shop):
    return [one for one in shop.seen if "-" in str(one[0])]


@with_shop()
async def test_partition_hooks_are_called_once_for_each_grant(shop):
    """Partition hooks are called once for each grant.

    If a partition moves, its last commit comes before the end hook, and the end before the next
    start.
    """
    hooked(shop)
    async with shop.workers("w0", "w1") as (start, stop):
        for number in range(3):
            await shop.send_keys(40)
            await until(lambda count=40 * (number + 1): len(events_of(shop)) == count)
            await start(f"w{number + 2}")
            await stop(f"w{number}")
    for number in range(4):
        seen = [one for one in shop.seen if one[1] == number]
        token, last = None, "0-0"
        for what, _, of, *offset in seen:
            if what == "start":
                assert token is None
                token = of
            elif what == "stop":
                assert (of, offset) == (token, [last])
                token = None
            else:
                assert of == token
                last = what
        assert token is None
    grants = [one[1:3] for one in shop.seen if one[0] == "start"]
    assert len(grants) == len(set(grants)) >= 5


@with_shop(partition_count=1)
async def test_partition_that_an_operator_moves_begins_anew(shop):
    """A partition that an operator moves calls its hooks anew.

    State that a hook has read before does not fit the events that follow.
    """
    hooked(shop)
    async with shop.workers("w"):
        await shop.send(0, 1)
        await until_seen(shop, 3)
        await until_true(lambda: shop.are_committed("note", 2))
        await admin.reset(shop.app, "note", "earliest")
        await until_seen(shop, 7)
    kinds = [one[0] if one[0] in ("start", "stop") else "leg" for one in shop.seen]
    assert kinds == ["start", "leg", "leg", "stop", "start", "leg", "leg", "stop"]


@with_shop(partition_count=1)
async def test_partition_that_is_lost_while_a_hook_starts_is_handed_over(shop):
    """A partition that is lost while a hook starts is handed over.

    The hook is cancelled within grace. Its worker got no events, and the next worker begins.
    """
    begun, ended = [], []

    async def start(owned):
        begun.append(owned.token)
        if not ended:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(owned.token)

    hooked(shop, on_partition_start=start, grace=1.0)
    async with shop.workers("w1") as (begin, leave):
        await shop.send(0)
        await until(lambda: begun)
        await begin("w2")
        await leave("w1")
        await until_seen(shop, 1)
    assert len(ended) == 1
    [leg, stop] = shop.seen
    assert leg[2] == stop[2] == begun[1] > ended[0] == begun[0]


@with_shop(partition_count=1)
async def test_hook_in_a_thread_at_the_end_keeps_the_role(shop):
    """A thread cannot be cancelled, so the next owner's start waits for it."""
    go = threading.Event()

    def stop(owned):
        go.wait(10)
        shop.seen.append("stop")

    hooked(shop, on_partition_stop=stop, grace=5.0)
    async with shop.workers("w1") as (begin, leave):
        await shop.send(0)
        await until_seen(shop, 2)
        await begin("w2")
        leaving = asyncio.create_task(leave("w1"))
        await pass_time(0.5)
        assert len(shop.seen) == 2
        go.set()
        await leaving
        await until_seen(shop, 4)
    assert [one if one == "stop" else one[0] for one in shop.seen[2:]] == ["stop", "start", "stop"]


@with_shop(partition_count=1)
async def test_hook_that_fails_keeps_its_partition_unprocessed(shop):
    """A failing hook keeps its partition unprocessed.

    No event is blamed, other partitions go on, and a mended hook goes on.
    """
    failures = [ValueError("no ledger")] * 3

    def start(owned):
        if failures:
            raise failures.pop()

    hooked(shop, on_partition_start=start, max_attempts=1, retry_for=0, backoff=(0.01, 0.02))
    async with shop.workers("w"):
        await shop.send(0, 1)
        await until_seen(shop, 2)
    assert (await admin.dead_letters(shop.app)).total == 0


@with_shop()
async def test_worker_hooks_are_called_around_all_partitions(shop):
    hooked(shop)
    shop.app.on_worker_start(lambda: shop.seen.append(("worker starts",)))
    shop.app.on_worker_stop(lambda: shop.seen.append(("worker stops",)))
    async with shop.workers("w"):
        await shop.send(0)
        await until_seen(shop, 6)
    assert shop.seen[0] == ("worker starts",)
    assert shop.seen[-1] == ("worker stops",)
    assert [one[0] for one in shop.seen].count("stop") == 4


@with_shop()
async def test_worker_whose_hook_fails_owns_nothing(shop):
    hooked(shop)

    @shop.app.on_worker_start
    async def open_pool():
        raise ConnectionError("no pool")

    @shop.app.on_worker_stop
    def close_pool():
        shop.seen.append("stop")

    with pytest.raises(ConnectionError, match="no pool"):
        await Worker(shop.app).run()
    assert shop.seen == []


@with_shop()
async def test_worker_that_is_halted_calls_its_hooks_at_the_end(shop):
    @shop.app.processor(shop.legs, on_error="halt", max_attempts=1, retry_for=0, **QUICK)
    async def note(events):
        async for _ in events:
            raise ValueError("no")

    shop.app.on_worker_stop(lambda: shop.seen.append("stop"))
    await shop.legs.send(Leg(n=0, who="a"))
    with pytest.raises(WorkerHalted):
        await Worker(shop.app).run()
    assert shop.seen == ["stop"]


@with_shop()
async def test_worker_that_is_stopped_while_a_hook_starts_ends_in_order(shop):
    hooked(shop)
    begun = asyncio.Event()

    @shop.app.on_worker_start
    async def load():
        begun.set()
        await asyncio.Event().wait()

    worker = Worker(shop.app)
    running = asyncio.create_task(worker.run())
    await begun.wait()
    worker.stop()
    await asyncio.wait_for(running, 5)
    assert shop.seen == []
