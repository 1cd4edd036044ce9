"""Test outages, bad deploys, pauses and lost data.

They lose no event, and keep the order of each key.
"""

import asyncio
import contextlib
import logging
import os
import random
import time

import pytest
from streams_support import stepping
from workers_support import QUICK, Leg, RealServers, Shop, until, until_seen, until_true, with_shop

from rink.errors import ConfigError, StaleToken
from rink.report_interval import REPORT_INTERVAL_S
from rink.streams import App, Record, RedisUnavailable, Worker, admin
from rink.streams.store.store import Store

pytestmark = pytest.mark.waits

OUTAGE_S = float(os.environ.get("RINK_TEST_OUTAGE_S", "3"))
"""Set it to 30 for an outage in full length."""


class LegWithSeat(Record):
    """Describe a leg with a seat, which earlier events lack.

    A bad deploy requires it.
    """

    n: int
    who: str
    seat: str


def per_key(count, keys):
    return {f"k{key}": list(range(key, count, keys)) for key in range(keys)}


async def all_dead(shop, processor="note"):
    numbers = range(shop.legs.partition_count)
    return [letter for n in numbers for letter in await shop.dead(processor, n)]


async def total(shop, name, processor="note"):
    found = [await shop.at(processor, n) for n in range(shop.legs.partition_count)]
    return sum(int(at.get(name, 0)) for at in found)


def counted(worker, name, processor="note"):
    """Return the sum of a metric over all partitions."""
    return sum(
        sample.value
        for metric in worker.metrics.registry.collect()
        for sample in metric.samples
        if sample.name == f"rink_streams_{name}"
    )


@contextlib.contextmanager
def logged():
    """Collect the log records of streams."""
    records, handler, logger = [], logging.Handler(), logging.getLogger("rink.streams")
    handler.emit = records.append
    logger.addHandler(handler)
    try:
        yield records
    finally:
        logger.removeHandler(handler)


# ── outages ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.timeout(300)
@pytest.mark.parametrize("takes", [1, 50, "in a thread"])
def test_outage_costs_no_event_and_no_order(rink_redis, etcd_url, prefix, caplog, takes):
    asyncio.run(_outage(rink_redis, etcd_url, prefix, caplog, takes))


# `is_down` must end: it does when the time is over and each of the 16 partitions has failed in the
# last second. It is called in turn for each partition, since its retries go on.
async def _outage(server, etcd_url, prefix, caplog, takes):
    shop = Shop(RealServers(server, etcd_url, prefix), partition_count=16)
    failed, ends = set(), [None]

    def is_down(partition):
        """Return whether the outage goes on.

        It lasts at least until its end time, and until all partitions have failed after that.
        """
        now = time.monotonic()
        if ends[0] is None or (now >= ends[0] and len(failed) == 16):
            return False
        if now >= ends[0] - 1:  # the first second has a line of its own in the log
            failed.add(partition)
        return True

    def process(partition, batch):
        if len(shop.seen) >= 2000 and ends[0] is None:
            ends[0] = time.monotonic() + OUTAGE_S
        if is_down(partition):
            raise ConnectionError("the bank cannot be reached")
        shop.seen.extend((leg.who, leg.n) for leg in batch)

    async def note(events):
        async for batch in events.take(takes).records():
            process(events.partition, batch)

    def note_in_thread(events):
        for leg in events.records():
            process(events.partition, [leg])

    function = note if isinstance(takes, int) else note_in_thread
    shop.app.processor(shop.legs, name="note", **QUICK)(function)
    await shop.send_keys(16_000, keys=200)
    with caplog.at_level(logging.INFO, "rink.streams"):
        async with shop.workers() as (start, _):
            worker = await start("a")
            await until_seen(shop, 16_000, OUTAGE_S * 3 + 60)
            await until_true(lambda: shop.are_committed("note", 16_000), what="committed")
    assert await all_dead(shop) == []
    assert shop.numbers() == per_key(16_000, 200), "each event once, in the order of its key"
    assert len(failed) == 16
    assert counted(worker, "transient_total") >= 16
    told = [record for record in caplog.records if "the bank cannot" in record.getMessage()]
    assert sum(record.exc_info is not None for record in told) == 1, "one traceback"
    assert any("in 16 partitions" in record.getMessage() for record in told)
    ends = [one for one in caplog.records if "goes on in all its partitions" in one.getMessage()]
    assert len(ends) == 1 or OUTAGE_S < REPORT_INTERVAL_S
    await shop.close()


@with_shop(partition_count=1)
async def test_outage_that_lasts_too_long_quarantines_and_goes_on_in_order(shop):
    is_down = True

    @shop.app.processor(shop.legs, backoff=(0.01, 0.05), transient_for=0.5, **QUICK)
    async def note(events):
        async for leg in events.records():
            if is_down and leg.n >= 3:
                raise TimeoutError("no answer from the bank")
            shop.seen.append((leg.who, leg.n))

    await shop.send(*range(20))
    async with shop.workers("a"):
        began = time.monotonic()
        reason = await shop.quarantined("note", 0)
        assert time.monotonic() - began > 0.5
        assert "TimeoutError: no answer from the bank" in reason
        assert "transient_for=0.5 s" in reason
        is_down = False
        [one] = await admin.unquarantine(shop.app)
        assert one.reason == reason
        await until_seen(shop, 20)
    assert shop.numbers("a") == list(range(20))
    assert await shop.dead("note", 0) == []


@with_shop(partition_count=1)
async def test_outage_between_failures_of_an_event_is_not_counted(shop):
    """An outage between an event's failures does not count as an attempt.

    A transient failure leaves the attempts of an event as they were.
    """
    errors = [ValueError, ConnectionError, ConnectionError, ConnectionError, ValueError, None]
    tries = []

    @shop.app.processor(shop.legs, backoff=(0.001, 0.01), max_attempts=3, retry_for=0, **QUICK)
    async def note(events):
        async for leg in events.records():
            tries.append(leg.n)
            if leg.n == 1 and (error := errors.pop(0)):
                raise error("odd")
            shop.seen.append((leg.who, leg.n))

    await shop.send(0, 1, 2)
    async with shop.workers("a"):
        await until_seen(shop, 3)
    assert tries == [0, 1, 1, 1, 1, 1, 1, 2]
    assert await shop.dead("note", 0) == []


@with_shop(partition_count=1)
async def test_error_that_passes_within_retry_for_costs_no_event(shop):
    """An error that passes within `retry_for` costs no event.

    There are far more than max_attempts failures.
    """
    tries = []

    @shop.app.processor(shop.legs, backoff=(0.001, 0.02), max_attempts=2, retry_for=30, **QUICK)
    async def note(events):
        async for leg in events.records():
            tries.append(leg.n)
            if leg.n == 1 and tries.count(1) <= 15:
                raise KeyError("a lock of another job")
            shop.seen.append((leg.who, leg.n))

    await shop.send(0, 1, 2)
    async with shop.workers("a"):
        await until_seen(shop, 3)
    assert shop.numbers("a") == [0, 1, 2]
    assert await shop.dead("note", 0) == []


# ── bad deploys ──────────────────────────────────────────────────────────────────────────────────


def bad_app(shop, **settings):
    """Return the same app after a deploy with a new required field."""
    app = App(
        "shop", redis=shop.servers.server.url, etcd=shop.app.etcd, ttl=10, session=shop.app.session
    )
    legs = app.stream(
        "legs", record=LegWithSeat, partition_by="who", partition_count=shop.legs.partition_count
    )
    seen = []

    @app.processor(legs, name="note", **QUICK, **settings)
    async def note(events):
        async for leg in events.records():
            seen.append(leg)

    return app


@contextlib.asynccontextmanager
async def running_worker(app, name):
    worker = Worker(app, name=name)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await task
        await app.close()


@pytest.mark.timeout(120)
@with_shop(partition_count=16)
async def test_bad_deploy_is_quarantined_and_costs_nothing_after_the_roll_back(shop):
    note_all(shop)
    await shop.send_keys(16_000, keys=200)
    async with running_worker(bad_app(shop), "bad"):
        reasons = [await shop.quarantined("note", number) for number in range(16)]
    assert all(
        "required field missing @ $.seat" in reason or "seat" in reason for reason in reasons
    )
    assert await all_dead(shop) == []
    async with shop.workers("good"):
        assert len(await admin.unquarantine(shop.app)) == 16
        await until_seen(shop, 16_000, 40)
    assert shop.numbers() == per_key(16_000, 200), "each event once, in the order of its key"


@pytest.mark.timeout(120)
@with_shop(partition_count=16)
async def test_bad_code_gives_up_few_events_and_requeue_brings_them_back(shop):
    """Bad code gives up few events, and a requeue brings them back.

    The deploy's function fails at each event, and so do the retries, until the breaker stops them.
    """
    is_bad = True

    @shop.app.processor(shop.legs, retry_for=0, backoff=(0.001, 0.002), **QUICK)
    async def note(events):
        async for leg in events.records():
            if is_bad:
                raise AttributeError("'Leg' object has no attribute 'seat'")
            shop.seen.append((leg.who, leg.n))

    await shop.send_keys(16_000, keys=200)
    async with shop.workers("a"):
        reasons = [await shop.quarantined("note", number) for number in range(16)]
        assert all("5 events in a row failed, the first: event" in reason for reason in reasons)
        assert all("has no attribute 'seat'" in reason for reason in reasons)
        assert len(await all_dead(shop)) == 16 * 4
        is_bad = False
        await admin.unquarantine(shop.app)
        assert len(await admin.requeue(shop.app)) == 16 * 4
        await until_seen(shop, 16_000, 40)
        await until_true(lambda: shop.are_committed("note", 16_000), what="committed")
    assert await all_dead(shop) == []
    assert {who: sorted(numbers) for who, numbers in shop.numbers().items()} == per_key(16_000, 200)


@with_shop(partition_count=1)
async def test_skip_after_the_breaker_gives_up_the_event_it_stands_at(shop):
    @shop.app.processor(
        shop.legs, retry_for=0, max_attempts=1, breaker=2, backoff=(0.001, 0.001), **QUICK
    )
    async def note(events):
        async for leg in events.records():
            if leg.n < 2:
                raise ValueError(leg.n)
            shop.seen.append((leg.who, leg.n))

    await shop.send(0, 1, 2)
    async with shop.workers("a"):
        await shop.quarantined("note", 0)
        assert len(await shop.dead("note", 0)) == 1
        [one] = await admin.unquarantine(shop.app, skip=True)
        assert one.skipped
        await until_seen(shop, 1)
    assert len(await shop.dead("note", 0)) == 2


@with_shop(partition_count=1)
async def test_partition_lost_before_its_quarantine_is_told_to_go_on(shop):
    """A partition lost before its quarantine is written still goes on.

    Redis is away when an event fails for the last time, and then the partition is handed over.
    """
    asked = []

    async def is_away(store, *given):
        asked.append(given)
        raise RedisUnavailable("away")

    @shop.app.processor(shop.legs, on_error="halt", max_attempts=1, retry_for=0, **QUICK)
    async def note(events):
        async for _ in events:
            raise ValueError("no")

    await shop.send(1)
    with logged() as records, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "quarantine", is_away)
        async with shop.workers("a"):
            await until(lambda: asked)
    told = [record.getMessage() for record in records]
    assert not (await shop.at("note", 0)).get("quarantined")
    assert [one for one in told if "lost before it was quarantined" in one]
    assert not [one for one in told if "is not processed until" in one]


@with_shop(partition_count=1)
async def test_odd_record_at_the_end_waits_for_the_one_behind_it(shop):
    """An odd record at the end of a partition waits for the next one.

    A deploy that meets a quiet partition gives nothing up until an event there decodes.
    """
    note_all(shop)
    await shop.send(0)
    await shop.redis.xadd(shop.names(0).stream, {"d": b'{"n":"one","who":"a"}'})
    async with shop.workers("a"):
        await until_seen(shop, 1)
        await asyncio.sleep(0.5)
        assert await shop.dead("note", 0) == []
        await shop.send(2)
        await until_seen(shop, 2)
        await until_true(lambda: shop.dead("note", 0), what="a dead letter")
    assert shop.numbers("a") == [0, 2]


def note_all(shop, **settings):
    @shop.app.processor(shop.legs, **QUICK, **settings)
    async def note(events):
        async for leg in events.records():
            shop.seen.append((leg.who, leg.n))


# ── timeouts ─────────────────────────────────────────────────────────────────────────────────────


@with_shop(partition_count=1)
async def test_event_that_takes_too_long_is_cancelled_and_given_up(shop):
    """An event that takes too long is cancelled and given up.

    In a batch, too: the batch has the timeout of each of its events, and these come again one by
    one.
    """
    cancelled = []

    @shop.app.processor(
        shop.legs, timeout=0.2, retry_for=0, max_attempts=2, backoff=(0.001, 0.01), **QUICK
    )
    async def note(events):
        async for batch in events.take(3).records():
            for leg in batch:
                if leg.n == 1:
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        cancelled.append(len(batch))
                        raise
            shop.seen.extend((leg.who, leg.n) for leg in batch)

    await shop.send(*range(6))
    async with shop.workers() as (start, _):
        worker = await start("a")
        await until_seen(shop, 5)
        assert counted(worker, "timeouts_total") == 3
    assert cancelled == [3, 1, 1]
    assert shop.numbers("a") == [0, 2, 3, 4, 5]
    [letter] = await shop.dead("note", 0)
    assert letter["error"].startswith("EventTimeout: processor 'note' took longer for 1 event")


@with_shop(partition_count=1)
async def test_thread_that_takes_too_long_is_counted_and_goes_on(shop):
    """A thread that exceeds its time is counted and goes on.

    A thread gets its events together from the loop, and each event has its own time.
    """

    @shop.app.processor(shop.legs, timeout=1.5, **QUICK)
    def note(events):
        for leg in events.records():
            time.sleep({10: 2.2, 20: 2.2}.get(leg.n, 0.03))
            shop.seen.append((leg.who, leg.n))

    await shop.send(*range(60))
    async with shop.workers() as (start, _):
        worker = await start("a")
        await until_seen(shop, 60)
        await asyncio.sleep(1.8)  # nothing is in hand
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
        await asyncio.sleep(3)
        for key in keys:
            await shop.send(2, 3, who=key)
        await asyncio.sleep(0.5)
        assert len(shop.seen) == 8
        await start("b")
        await stop("a")
        await until_true(lambda: is_owned(shop), what="the other worker owns all")
        await asyncio.sleep(0.5)
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
        await asyncio.sleep(3)
        go.set()
        await until_true(lambda: shop.are_committed("note", 3), what="committed")
        await asyncio.sleep(0.2)
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
        await asyncio.sleep(0.5)
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
            assert "has evicted keys" in await shop.quarantined("note", 0)
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
    assert "goes on behind 0-0" in lost_data(records)


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
    assert "come again" in lost_data(records)


async def is_done(shop, count):
    [one] = await admin.lag(shop.app)
    return len(shop.seen) >= count and one.lag == 0 and one.owned


def lost_data(records):
    """Return the log message about lost data, or "" before it is noticed."""
    told = [one for one in records if "on_data_loss='continue'" in one.getMessage()]
    assert [one.levelno for one in told] in ([], [logging.ERROR])
    return told[0].getMessage() if told else ""


# ── all at once ──────────────────────────────────────────────────────────────────────────────────

STORM_S = float(os.environ.get("RINK_TEST_STORM_S", "8"))


@pytest.mark.timeout(300)
@with_shop(partition_count=8)
async def test_outages_pauses_and_hand_overs_together_cost_nothing(shop):
    """Outages, pauses and hand-overs together repeat no event.

    No process dies, so each event is processed once, in the order of its key.
    """
    luck, tries = random.Random(7), [0]

    @shop.app.processor(shop.legs, backoff=(0.01, 0.2), retry_for=60, timeout=5, grace=4, **QUICK)
    async def note(events):
        async for batch in events.take(luck.choice((1, 5, 40))).records():
            tries[0] += 1
            if tries[0] % 7 == 0:
                raise luck.choice((ConnectionError, TimeoutError, ValueError))("for a moment")
            await asyncio.sleep(luck.random() * 0.01)
            shop.seen.extend((leg.who, leg.n) for leg in batch)

    async def send(ends):
        count = 0
        while time.monotonic() < ends:
            await shop.legs.send_many(Leg(n=n, who=f"k{n % 40}") for n in range(count, count + 40))
            count += 40
            await asyncio.sleep(0.02)
        return count

    async with shop.workers("a", "b") as (start, stop):
        sending = asyncio.create_task(send(time.monotonic() + STORM_S))
        names = ["a", "b"]
        while not sending.done():
            number = luck.randrange(8)
            await admin.pause(shop.app, "note", partition=number)
            if luck.random() < 0.4:
                names.append(f"w{len(shop.seen)}-{tries[0]}")
                await start(names[-1])
                await stop(names.pop(0))
            await asyncio.sleep(luck.random())
            await admin.resume(shop.app, "note", partition=number)
        count = await sending
        await admin.resume(shop.app, "note")
        await until_true(lambda: shop.are_committed("note", count), 60, what="all committed")
    assert shop.numbers() == per_key(count, 40)
    assert await all_dead(shop) == []
