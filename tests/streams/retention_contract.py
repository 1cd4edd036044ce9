"""Test retention: processed events stay for a while.

New and reset processors replay them.
"""

import itertools
from datetime import UTC, datetime, timedelta

import attrs
import pytest
from retention_support import DAY_MS, add_at, redis_ms, true_size
from steps_support import stepping
from workers_support import QUICK, Leg, Shop, until, until_seen, until_true, with_shop

from rink.streams import PartitionFull, admin
from rink.streams.consumer.worker import Worker
from rink.streams.retention import Retention, check_retention
from rink.streams.store import entry_ids
from rink.streams.store.values import PartitionBounds
from rink.streams.stream import partition_bounds, settle

WEEK = {"keep": "7d", "partition_count": 2}


def note_all(shop, name, **given):
    """Declare a processor that notes what it sees under its own name."""
    seen = []

    @shop.app.processor(shop.legs, name=name, **QUICK, **given)
    async def note(events):
        async for leg in events.records():
            seen.append(leg.n)
            shop.seen.append((name, leg.n))

    return seen


async def send_yesterday(shop, count, *, who="a"):
    """Append events sent one a minute from yesterday's midnight on.

    Return that midnight.
    """
    now = datetime.fromtimestamp(await redis_ms(shop.redis) / 1000, UTC)
    midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) - timedelta(days=1)
    number = shop.partition(who)
    first = int(midnight.timestamp() * 1000)
    await shop.app.connections.open()
    await settle(shop.legs, (await shop.app.connections.open()).store)
    encode = shop.legs.codec.encode
    entries = [(f"{first + n * 60_000}-0", encode(Leg(n=n, who=who))) for n in range(count)]
    await add_at(shop.redis, shop.names(number), partition_bounds(shop.legs), entries)
    return midnight


@with_shop(**WEEK)
async def test_new_processor_replays_what_is_kept(shop):
    first = note_all(shop, "first")
    async with shop.workers("one"):
        await send_yesterday(shop, 200)
        await shop.send(*range(200, 300))
        await until_seen(shop, 300)
        await until_true(lambda: shop.are_committed("first", 300))
    second = note_all(shop, "second")
    async with shop.workers("one"):
        await until_seen(shop, 600)
    assert first == second == list(range(300))


@with_shop(**WEEK)
async def test_reset_processor_replays_yesterdays_window(shop):
    """A reset processor replays yesterday's window.

    An operator gives the window's begin as ISO 8601. Events from then on come again, and none
    before.
    """
    seen = note_all(shop, "bill")
    async with shop.workers("one"):
        midnight = await send_yesterday(shop, 200)
        await until_true(lambda: shop.are_committed("bill", 200))
    seen.clear()
    since = midnight + timedelta(minutes=90)
    await admin.reset(shop.app, "bill", since.isoformat())
    async with shop.workers("one"):
        await until_true(lambda: shop.are_committed("bill", 310))
    assert seen == list(range(90, 200))


@with_shop(partition_count=2)
async def test_events_without_keep_go_once_all_have_passed(shop):
    seen = note_all(shop, "bill")
    async with shop.workers("one"):
        await send_yesterday(shop, 200)
        await until_true(lambda: shop.are_committed("bill", 200))
    names = shop.names(shop.partition("a"))
    await (await shop.app.connections.open()).store.trim(names)
    assert await shop.redis.xlen(names.stream) == 1  # the one that shows that nothing is missing
    await admin.reset(shop.app, "bill", "earliest")
    seen.clear()
    async with shop.workers("one"):
        await until_seen(shop, 201)
    assert seen == [199]


@with_shop(**WEEK, partition_size=50)
async def test_partition_size_bounds_unprocessed_not_kept_events(shop):
    seen = note_all(shop, "bill")
    async with shop.workers("one"):
        for begin in range(0, 1000, 50):
            await shop.send(*range(begin, begin + 50))
        await until_seen(shop, 1000)
        await until_true(lambda: shop.are_committed("bill", 1000))
    assert await shop.redis.xlen(shop.names(shop.partition("a")).stream) == 1000
    await shop.send(*range(1000, 1050))
    with pytest.raises(PartitionFull, match="50 events"):
        await shop.legs.send(Leg(n=1050, who="a"), timeout=1.0)
    async with shop.workers("one"):
        await until_seen(shop, 1050)
        await shop.legs.send(Leg(n=1050, who="a"))
    assert seen[:1050] == list(range(1050))


@with_shop(**WEEK, partition_size=50)
async def test_replay_does_not_hold_senders_back(shop):
    """A replay does not hold senders back.

    Events before a processor's registration or reset are not counted; later ones are.
    """
    note_all(shop, "bill")
    async with shop.workers("one"):
        for begin in range(0, 500, 50):
            await shop.send(*range(begin, begin + 50))
        await until_true(lambda: shop.are_committed("bill", 500))
    await admin.reset(shop.app, "bill", "earliest")
    note_all(shop, "late")
    await Worker(shop.app)._register((await shop.app.connections.open()).store)
    await shop.send(*range(500, 550))
    with pytest.raises(PartitionFull):
        await shop.legs.send(Leg(n=550, who="a"), timeout=1.0)
    async with shop.workers("one"):
        await until_seen(shop, 500 + 550 + 550)


@with_shop(keep="1h", partition_count=2)
async def test_unprocessed_events_outlive_a_shorter_keep(shop):
    seen = note_all(shop, "bill")
    await Worker(shop.app)._register((await shop.app.connections.open()).store)
    await send_yesterday(shop, 200)
    await shop.send(200)
    names = shop.names(shop.partition("a"))
    store = (await shop.app.connections.open()).store
    assert await store.trim(names) == 0
    async with shop.workers("one"):
        await until_seen(shop, 201)
        await until_true(lambda: shop.are_committed("bill", 201))
    await store.trim(names)
    assert await shop.redis.xlen(names.stream) < 201
    await shop.send(201)
    async with shop.workers("one"):
        await until_seen(shop, 202)
    assert seen == list(range(202))
    await store.trim(names)
    assert await shop.redis.xlen(names.stream) <= 3, "and the segment of the last that is too old"


@with_shop(keep_bytes=20_000, partition_count=2)
async def test_kept_bytes_stay_near_their_bound(shop):
    note_all(shop, "bill")
    number = shop.partition("a")
    async with shop.workers("one"):
        await shop.send(*range(3000))
        await until_true(lambda: shop.are_committed("bill", 3000))
        await shop.send(3000)
        [lag] = await admin.lag(shop.app, processor="bill", partition=number)
    assert 20_000 <= lag.bytes <= 20_000 * 1.2
    assert lag.kept == await shop.redis.xlen(shop.names(number).stream)


@with_shop(**WEEK)
async def test_lag_shows_unprocessed_and_kept_events(shop):
    note_all(shop, "bill")
    number = shop.partition("a")
    async with shop.workers("one"):
        midnight = await send_yesterday(shop, 120)
        await until_true(lambda: shop.are_committed("bill", 120))
    await shop.send(120, 121, 122)
    [lag] = await admin.lag(shop.app, processor="bill", partition=number)
    assert (lag.lag, lag.kept) == (3, 123)
    assert lag.since == midnight.isoformat(timespec="milliseconds")
    entries = await shop.redis.xrange(shop.names(number).stream)
    assert lag.bytes == sum(len(b"d") + len(fields[b"d"]) for _, fields in entries)
    assert lag.keep == "7 d"


@with_shop(keep_bytes=20_000, trim="oldest", partition_size=5, partition_count=2)
async def test_senders_of_a_log_wait_for_nobody(shop):
    """Senders of a log wait for no processor.

    With trim="oldest" retention alone decides the trimming, and events that a processor missed are
    counted.
    """
    note_all(shop, "bill")
    await Worker(shop.app)._register((await shop.app.connections.open()).store)
    await shop.send(*range(3000))
    number = shop.partition("a")
    [lag] = await admin.lag(shop.app, processor="bill", partition=number)
    assert 20_000 <= lag.bytes <= 20_000 * 1.2
    assert (lag.lag, lag.lost, lag.size) == (lag.kept, 3000 - lag.kept, 0)
    async with shop.workers("one"):
        await until_seen(shop, lag.kept)
    assert shop.seen[0] == ("bill", 3000 - lag.kept)


@with_shop(**WEEK, partition_size=20)
async def test_events_before_the_first_worker_wait_for_it(shop):
    """Events before the first worker wait for it.

    While no processor is registered, nothing is removed, and senders wait.
    """
    await send_yesterday(shop, 10)
    await shop.send(*range(10, 20))
    with pytest.raises(PartitionFull, match="no processor has been registered"):
        await shop.legs.send(Leg(n=20, who="a"), timeout=1.0)
    seen = note_all(shop, "bill")
    async with shop.workers("one"):
        await shop.legs.send(Leg(n=20, who="a"))
        await until_seen(shop, 21)
    assert seen == list(range(21))


@with_shop(**WEEK, partition_size=20)
async def test_senders_go_on_after_an_operator_has_trimmed(shop):
    """Senders go on after an operator has trimmed.

    An operator may trim when memory is short. The counters then miss events, but hold no sender
    back.
    """
    note_all(shop, "bill")
    names = shop.names(shop.partition("a"))
    for begin in range(0, 200, 20):
        async with shop.workers("one"):
            await shop.legs.send_many([Leg(n=begin + n, who="a") for n in range(20)], timeout=10)
            await until_seen(shop, begin + 20)
        if begin % 60 == 0:
            await shop.redis.xtrim(names.stream, maxlen=1, approximate=False)
        if begin == 80:
            await shop.redis.delete(names.segments)
        if begin == 100:
            await shop.redis.delete(names.kept)
    assert [n for _, n in shop.seen] == list(range(200))


def test_worker_tells_of_another_programs_keep(servers, caplog):
    """A worker reports another program's `keep`.

    The worker that started last decides. A worker without the setting changes nothing, and 0 ends
    it.
    """

    @with_shop(partition_count=2)
    async def body(shop):
        async def started(keep):
            caplog.clear()
            shop.legs.retention = check_retention(keep, None)
            store = (await shop.app.connections.open()).store
            await Worker(shop.app)._register(store)
            return "".join(caplog.messages), await store.retention(shop.names(0))

        note_all(shop, "bill")
        assert await started(None) == ("", None)
        assert await started("7d") == ("", Retention(7 * DAY_MS))
        assert await started("168h") == ("", Retention(7 * DAY_MS))
        told, kept = await started("1d")
        assert "now keeps events for 1 d" in told
        assert "had set 7 d" in told
        assert kept == Retention(DAY_MS)
        told, kept = await started(None)
        assert "keeps events for 1 d" in told
        assert "keep=0 to end the retention" in told
        assert kept == Retention(DAY_MS)
        told, kept = await started(0)
        assert "keeps events for no time" in told
        assert kept == Retention()
        assert await started(None) == ("", Retention())

    body(servers)


@with_shop(partition_count=2, partition_size=110)
async def test_sender_that_says_nothing_removes_nothing(shop):
    """A sender without the setting removes nothing.

    An old program runs among new ones. Neither its appends nor its trimming touch the kept events.
    """
    note_all(shop, "bill")
    number = shop.partition("a")
    store = (await shop.app.connections.open()).store
    names, week = shop.names(number), Retention(7 * DAY_MS)
    await store.retain(names, attrs.evolve(partition_bounds(shop.legs), retention=week))
    async with shop.workers("one"):
        await shop.send(*range(100))
        await until_true(lambda: shop.are_committed("bill", 100))
    await shop.send(*range(100, 120))
    await store.trim(names)
    assert await shop.redis.xlen(names.stream) == 120


@with_shop(keep="1h", partition_count=2)
async def test_idle_partition_is_trimmed_by_its_worker(shop):
    note_all(shop, "bill")
    names = shop.names(shop.partition("a"))
    await send_yesterday(shop, 100)
    async with shop.workers("one"):
        await until_seen(shop, 100)
        await until_true(lambda: has_length(shop, names, 1))


async def has_length(shop, names, length):
    return await shop.redis.xlen(names.stream) == length


@with_shop(keep="1h", partition_count=2)
async def test_reset_before_what_is_kept_is_told_of(shop):
    note_all(shop, "bill")
    async with shop.workers("one"):
        midnight = await send_yesterday(shop, 200)
        await shop.send(200)
        await until_true(lambda: shop.are_committed("bill", 201))
        await shop.send(201)
        await until_true(lambda: shop.are_committed("bill", 202))
    number = shop.partition("a")
    await (await shop.app.connections.open()).store.trim(shop.names(number))
    [(first, _)] = await shop.redis.xrange(shop.names(number).stream, count=1)
    for to, told in [
        (midnight, entry_ids.when(first.decode())),
        ("earliest", ""),
        (first.decode(), ""),
        ("latest", ""),
    ]:
        [moved] = await admin.reset(shop.app, "bill", to, partition=number)
        assert moved.gone_before == told


@with_shop(keep_bytes=20_000, partition_count=2)
async def test_sends_alone_remove_what_is_not_kept(shop):
    """Sends alone remove the events that are not kept.

    Without commits for a while, as with a query of Spark, nothing else would remove them.
    """
    note_all(shop, "bill")
    await Worker(shop.app)._register((await shop.app.connections.open()).store)
    for begin in range(0, 3000, 500):
        await shop.send(*range(begin, begin + 500))
        await admin.reset(shop.app, "bill", "latest")
    [lag] = await admin.lag(shop.app, processor="bill", partition=shop.partition("a"))
    assert lag.bytes < 20_000 * 1.2 + 500 * 30


@stepping
async def test_room_is_all_there_after_an_operator_has_trimmed(steps, server):
    """All room is there again after an operator has trimmed.

    Events that he removed within a segment were never counted as passed. Once all processors have
    passed all events, there is room.
    """
    bounds = PartitionBounds(20, retention=Retention(7 * DAY_MS))
    place = attrs.evolve(steps.place, bounds=bounds)
    calls = itertools.count(1)

    async def send(count):
        return (await steps.store.append(place.names, bounds, [b"{}"] * count, next(calls), False))[
            0
        ]

    async def commit_up_to(number):
        nonlocal offset
        new = (await steps.ids())[number]
        await steps.commit(5, offset, new, place)
        offset = new

    offset = "0-0"
    await steps.take(5, place)
    assert await send(20) == 20
    await commit_up_to(4)
    assert await send(6) == 5
    await commit_up_to(-1)
    await steps.redis.xtrim(place.names.stream, maxlen=1, approximate=False)
    for _ in range(3):
        assert await send(20) == 20
        await commit_up_to(-1)


@stepping
async def test_retention_goes_on_after_the_counts_were_lost(steps, server):
    """Retention goes on after the counts were lost.

    A Redis that evicts may lose only the hash. The segments that it counted are then removed, too.
    """
    bounds = PartitionBounds(1000, retention=Retention(size=1000))
    names = steps.place.names
    await steps.store.register(attrs.evolve(steps.place, bounds=bounds))
    for number in range(1, 9):
        if number == 5:
            await steps.redis.delete(names.kept)
        await steps.store.append(names, bounds, [b"x" * 99] * 20, number, False)
        last = (await steps.ids())[-1]
        await steps.redis.hset(names.offsets, steps.place.processor, last)
        await steps.store.trim(names)
        assert (await true_size(steps.redis, names))[1] <= 1000 * 1.125 + 100


async def _loses(shop, lose):
    """Make Redis lose the settings of retention.

    Meanwhile only senders without the setting go on.
    """
    seen = note_all(shop, "bill", on_data_loss="continue")
    silent = Shop(shop.servers, partition_count=2)
    names = shop.names(shop.partition("a"))
    store = (await shop.app.connections.open()).store

    async def is_said():
        return await store.retention(names) == Retention(7 * DAY_MS)

    async with shop.workers("one"):
        await shop.send(*range(50))
        await until_true(lambda: shop.are_committed("bill", 50))
        await lose(names)
        await silent.send(*range(50, 100))
        await until(lambda: 99 in seen)
        await until_true(is_said)
        await silent.send(*range(100, 150))
        await until(lambda: 149 in seen)
    await silent.close()
    await store.trim(names)
    assert sorted(set(seen)) == list(range(150))
    return await shop.redis.xlen(names.stream)


@with_shop(**WEEK, partition_size=160)
async def test_worker_says_again_how_long_events_stay(shop):
    assert await _loses(shop, lambda names: shop.redis.delete(names.kept)) == 150


@with_shop(**WEEK, partition_size=160)
async def test_flushed_redis_keeps_events_as_before(shop):
    assert await _loses(shop, lambda names: shop.redis.flushall()) == 100


@stepping
async def test_lag_without_its_counters_is_counted_one_by_one(steps, server):
    """A lag without its counters is counted event by event.

    Redis loses the counters first, and then the segments, which hold how much came before.
    """
    bounds = PartitionBounds(1000, retention=Retention(size=1))  # each event has a segment
    place = attrs.evolve(steps.place, bounds=bounds)
    await steps.store.register(place)
    added = await steps.add(20, place)
    await steps.take(1, place)
    await steps.commit(1, "0-0", added[4], place)
    for lose in (place.names.kept, place.names.segments):
        await steps.redis.delete(lose)
        look = await steps.store.look(place)
        assert (look.lag, look.length, look.held) == (15, look.length, look.length)
        assert look.size == 0, "it is not known"
