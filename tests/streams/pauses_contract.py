"""Test pauses of processors, and lost data.

Neither loses an event.
"""

import asyncio

import pytest
from failures_support import is_done, logged, lost_data, note_all
from steps_support import stepping
from workers_support import QUICK, pass_time, until, until_seen, until_true, with_shop

from rink.errors import ConfigError, StaleToken
from rink.streams import admin

# ── pauses ───────────────────────────────────────────────────────────────────────────────────────


@with_shop()
async def test_paused_processor_keeps_its_partitions_through_a_restart(shop):
    note_all(shop)
    keys = [shop.of_key(number) for number in range(4)]
    async with shop.workers("a") as (start, stop):
        for key in keys:
            await shop.send(0, 1, who=key)
        await until_seen(shop, 8)
        assert len(await admin.pause(shop.app, "note")) == 4
        assert await admin.pause(shop.app, "note") == ()
        await pass_time(3)
        for key in keys:
            await shop.send(2, 3, who=key)
        await pass_time(0.5)
        assert len(shop.seen) == 8
        await start("b")
        await stop("a")
        await until_true(lambda: is_owned(shop), what="the other worker owns all")
        await pass_time(0.5)
        assert len(shop.seen) == 8
        for one in await admin.lag(shop.app):
            assert (one.paused, one.owned, one.lag) == (True, True, 2)
        [owners] = await admin.owners(shop.app)
        assert all(one.paused for one in owners.partitions)
        assert len(await admin.resume(shop.app, "note", partition=1)) == 1
        await until_seen(shop, 10)
        assert len(await admin.resume(shop.app, "note")) == 3
        await until_seen(shop, 16)
    for key in keys:
        assert shop.numbers(key) == [0, 1, 2, 3]


async def is_owned(shop):
    return all(one.owned for one in await admin.lag(shop.app))


@with_shop(partition_count=1)
async def test_pause_lets_what_is_in_hand_be_committed(shop):
    go = asyncio.Event()

    @shop.app.processor(shop.legs, **QUICK)
    async def note(events):
        async for batch in events.take(3).records():
            shop.seen.extend((leg.who, leg.n) for leg in batch)
            await go.wait()

    await shop.send(*range(6))
    async with shop.workers("a"):
        await until_seen(shop, 3)
        await admin.pause(shop.app, "note")
        await pass_time(3)
        go.set()
        await until_true(lambda: shop.are_committed("note", 3), what="committed")
        await pass_time(0.2)
        assert len(shop.seen) == 3
        await admin.resume(shop.app, "note")
        await until_seen(shop, 6)
    assert shop.numbers("a") == list(range(6))


@with_shop(partition_count=1)
async def test_pause_outlasts_unquarantine_and_reset(shop):
    note_all(shop)
    await shop.send(1)
    await admin.pause(shop.app, "note")  # before it was ever started
    async with shop.workers("a"):
        await until_true(lambda: is_owned(shop), what="owned")
        await admin.reset(shop.app, "note", "earliest")
        await shop.redis.hset(shop.names(0).at("note"), "quarantined", "why")
        await admin.unquarantine(shop.app)
        await pass_time(0.5)
        assert shop.seen == []
        await admin.resume(shop.app, "note")
        await until_seen(shop, 1)


@with_shop(partition_count=1)
async def test_pause_of_what_has_no_workers_of_ours_is_refused(shop):
    note_all(shop)
    with pytest.raises(ConfigError, match="no processor 'other'"):
        await admin.pause(shop.app, "other")
    with pytest.raises(ConfigError, match="query of Spark"):
        await admin.resume(shop.app, "spark/totals")


# ── lost data ────────────────────────────────────────────────────────────────────────────────────


@stepping
async def test_data_is_not_accepted_by_an_owner_of_before(steps, server):
    await steps.add(3)
    await steps.take(6)
    with pytest.raises(StaleToken):
        await steps.store.accept(steps.place, 5)
    assert (await steps.position()).epoch == "0"
    assert await steps.store.accept(steps.place, 6) == "0-0"
    assert (await steps.position()).epoch == "1"


@with_shop(partition_count=1)
async def test_evicted_place_is_noticed_before_an_event_is_processed(shop):
    """An evicted place is noticed before an event is processed.

    The last owner of the partition is then unknown. Repeated notices change nothing.
    """
    note_all(shop)
    place = shop.app.processors["note"].place(0)
    async with shop.workers("a"):
        await shop.send(0, 1, 2)
        await until_true(lambda: shop.are_committed("note", 3), what="committed")
    await shop.redis.delete(place.at)
    for _ in range(2):
        async with shop.workers("a"):
            await shop.send(3)
            assert "or evicted keys" in await shop.quarantined("note", 0)
    assert shop.numbers("a") == [0, 1, 2]
    await admin.unquarantine(shop.app)
    async with shop.workers("a"):
        await until_seen(shop, 5)
    assert shop.numbers("a") == [0, 1, 2, 3, 3]


@with_shop(partition_count=1)
async def test_flushed_redis_with_continue_goes_on_from_the_start(shop):
    note_all(shop, on_data_loss="continue")
    with logged() as records:
        async with shop.workers("a"):
            await shop.send(0, 1, 2)
            await until_true(lambda: shop.are_committed("note", 3), what="committed")
            await shop.redis.flushall()
            await shop.send(3, 4)
            await until(lambda: lost_data(records), 20)
            await until_true(lambda: is_done(shop, 5), 20, what="all committed")
    # They may have been read before the loss was noticed.
    assert shop.numbers("a") in ([0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 3, 4], [0, 1, 2, 3, 3, 4])
    assert "continues after 0-0" in lost_data(records)
