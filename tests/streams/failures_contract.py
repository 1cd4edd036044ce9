"""Test outages and bad deploys.

They lose no event, and keep the order of each key.
"""

import asyncio
import contextlib
import random

import pytest
from failures_support import all_dead, counted, logged, note_all, per_key
from workers_support import (
    QUICK,
    Leg,
    Shop,
    pass_time,
    until,
    until_seen,
    until_true,
    with_shop,
)

from rink.event_loops import loop_time
from rink.report_interval import REPORT_INTERVAL_S
from rink.streams import Record, RedisUnavailable, Worker, admin
from rink.streams.store.store import Store

EVENTS = 800


class LegWithSeat(Record):
    """Describe a leg with a seat, which earlier events lack.

    A bad deploy requires it.
    """

    n: int
    who: str
    seat: str


# ── outages ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.timeout(300)
@pytest.mark.parametrize("takes", [1, 50, "in a thread"])
def test_outage_costs_no_event_and_no_order(servers, takes):
    servers.run(_outage(servers, takes))


# `is_down` must end: it does when the time is over and each of the 4 partitions has failed in the
# last second. It is called in turn for each partition, since its retries go on.
async def _outage(servers, takes):
    shop = Shop(servers, partition_count=4)
    failed, ends = set(), [None]
    now = asyncio.get_running_loop().time  # of any thread

    def is_down(partition):
        """Return whether the outage goes on.

        It lasts at least until its end time, and until all partitions have failed after that.
        """
        if ends[0] is None or (now() >= ends[0] and len(failed) == 4):
            return False
        if now() >= ends[0] - 1:  # the first second has a line of its own in the log
            failed.add(partition)
        return True

    def process(partition, batch):
        if len(shop.seen) >= 50 and ends[0] is None:  # no partition has so few
            ends[0] = now() + servers.outage_s
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
    await shop.send_keys(EVENTS, keys=200)
    with logged() as records:
        async with shop.workers() as (start, _):
            worker = await start("a")
            await until_seen(shop, EVENTS, servers.outage_s * 3 + 60)
            await until_true(lambda: shop.are_committed("note", EVENTS), what="committed")
    assert await all_dead(shop) == []
    assert shop.numbers() == per_key(EVENTS, 200), "each event once, in the order of its key"
    assert len(failed) == 4
    assert counted(worker, "transient_total") >= 4
    told = [record for record in records if "the bank cannot" in record.getMessage()]
    assert sum(record.exc_info is not None for record in told) == 1, "one traceback"
    assert any("in 4 partitions" in record.getMessage() for record in told)
    ends = [one for one in records if "continues in all its partitions" in one.getMessage()]
    assert len(ends) == 1 or servers.outage_s < REPORT_INTERVAL_S
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
        began = loop_time()
        reason = await shop.quarantined("note", 0)
        assert loop_time() - began > 0.5
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
    app = shop.servers.app("shop")
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
@with_shop(partition_count=8)
async def test_bad_deploy_is_quarantined_and_costs_nothing_after_the_roll_back(shop):
    note_all(shop)
    await shop.send_keys(EVENTS, keys=200)
    async with running_worker(bad_app(shop), "bad"):
        reasons = [await shop.quarantined("note", number) for number in range(8)]
    assert all(
        "required field missing @ $.seat" in reason or "seat" in reason for reason in reasons
    )
    assert await all_dead(shop) == []
    async with shop.workers("good"):
        assert len(await admin.unquarantine(shop.app)) == 8
        await until_seen(shop, EVENTS, 40)
    assert shop.numbers() == per_key(EVENTS, 200), "each event once, in the order of its key"


@pytest.mark.timeout(120)
@with_shop(partition_count=8)
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

    await shop.send_keys(EVENTS, keys=200)
    async with shop.workers("a"):
        reasons = [await shop.quarantined("note", number) for number in range(8)]
        assert all("5 events in a row failed, the first: event" in reason for reason in reasons)
        assert all("has no attribute 'seat'" in reason for reason in reasons)
        assert len(await all_dead(shop)) == 8 * 4
        is_bad = False
        await admin.unquarantine(shop.app)
        assert len(await admin.requeue(shop.app)) == 8 * 4
        await until_seen(shop, EVENTS, 40)
        await until_true(lambda: shop.are_committed("note", EVENTS), what="committed")
    assert await all_dead(shop) == []
    assert {who: sorted(numbers) for who, numbers in shop.numbers().items()} == per_key(EVENTS, 200)


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
        await pass_time(0.5)
        assert await shop.dead("note", 0) == []
        await shop.send(2)
        await until_seen(shop, 2)
        await until_true(lambda: shop.dead("note", 0), what="a dead letter")
    assert shop.numbers("a") == [0, 2]


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
                        await pass_time(60)
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


# ── all at once ──────────────────────────────────────────────────────────────────────────────────

STORM_S = 6.0


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
            await pass_time(luck.random() * 0.01)
            shop.seen.extend((leg.who, leg.n) for leg in batch)

    async def send(ends):
        count = 0
        while loop_time() < ends:
            await shop.legs.send_many(Leg(n=n, who=f"k{n % 20}") for n in range(count, count + 20))
            count += 20
            await pass_time(0.2)
        return count

    async with shop.workers("a", "b") as (start, stop):
        sending = asyncio.create_task(send(loop_time() + STORM_S))
        names = ["a", "b"]
        while not sending.done():
            number = luck.randrange(4)
            await admin.pause(shop.app, "note", partition=number)
            if luck.random() < 0.4:
                names.append(f"w{len(shop.seen)}-{tries[0]}")
                await start(names[-1])
                await stop(names.pop(0))
            await pass_time(luck.random())
            await admin.resume(shop.app, "note", partition=number)
        count = await sending
        await admin.resume(shop.app, "note")
        await until_true(lambda: shop.are_committed("note", count), 60, what="all committed")
    assert shop.numbers() == per_key(count, 20)
    assert await all_dead(shop) == []
