"""Test workers that share partitions.

The tests cover order, hand-over, and which events come again.
"""

import asyncio
import threading

from workers_support import QUICK, Leg, Shop, pass_time, until, until_seen, until_true, with_shop

from rink.event_loops import loop_time
from rink.streams import TooManyUncommitted


@with_shop()
async def test_each_event_is_processed_once_and_those_of_one_key_in_order(shop):
    @shop.app.processor(shop.legs, **QUICK)
    async def note(events):
        async for leg in events.records():
            shop.seen.append((leg.who, leg.n))

    await shop.send_keys(2000)
    async with shop.workers("a", "b"):
        await until_seen(shop, 2000)
        await shop.send_keys(10)
        await until_seen(shop, 2010)
    for numbers in shop.numbers().values():
        assert numbers[:100] == sorted(set(numbers[:100]))
    assert len(shop.seen) == 2010


@with_shop()
async def test_worker_that_leaves_finishes_what_it_has_and_nothing_comes_again(shop):
    @shop.app.processor(shop.legs, **QUICK)
    async def note(events):
        async for leg in events.records():
            await pass_time(0.002)
            shop.seen.append((leg.who, leg.n))

    await shop.send_keys(600)
    async with shop.workers("a", "b") as (start, stop):
        await until_seen(shop, 100)
        await stop("a")
        await start("c")
        await until_seen(shop, 300)
        await stop("b")
        await until_seen(shop, 600)
    assert len(shop.seen) == 600
    for numbers in shop.numbers().values():
        assert numbers == sorted(set(numbers))
    assert {(await shop.at("note", number))["open"] for number in range(4)} == {"0"}
    assert not any([(await shop.at("note", number)).get("unclean") for number in range(4)])


@with_shop()
async def test_batches_are_committed_when_the_next_one_is_asked_for(shop):
    sizes = []

    @shop.app.processor(shop.legs, **QUICK)
    async def note(events):
        async for batch in events.take(50):
            sizes.append(len(batch))
            shop.seen.extend((event.record.who, event.record.n) for event in batch)

    await shop.send_keys(1000)
    async with shop.workers("a"):
        await until_seen(shop, 1000)
    assert max(sizes) == 50
    assert sum([int((await shop.at("note", number))["processed"]) for number in range(4)]) == 1000


@with_shop()
async def test_batch_waits_for_its_number_within_the_given_time(shop):
    batches = []

    @shop.app.processor(shop.legs, **QUICK)
    async def note(events):
        async for batch in events.take(3, within=4.0).records():
            batches.append((loop_time(), [leg.n for leg in batch]))

    async with shop.workers("a"):
        began = loop_time()
        await shop.send(1)
        await pass_time(0.1)
        await shop.send(2)
        await until(lambda: len(batches) == 1)
        assert batches[0][1] == [1, 2]
        assert 3.5 < batches[0][0] - began < 12
        await shop.send(3, 4, 5)
        await until(lambda: len(batches) == 2)
        assert batches[1][1] == [3, 4, 5]


@with_shop()
async def test_plain_function_runs_in_a_thread_for_each_partition(shop):
    threads = set()

    @shop.app.processor(shop.legs, **QUICK)
    def note(events):
        for leg in events.records():
            threads.add(threading.current_thread().name)
            shop.seen.append((leg.who, leg.n))

    await shop.send_keys(2000)
    async with shop.workers("a") as (start, _):
        await until_seen(shop, 500)
        await start("b")
        await until_seen(shop, 2000)
    assert len(shop.seen) == 2000
    for numbers in shop.numbers().values():
        assert numbers == sorted(set(numbers))
    assert all(name.startswith("rink-partition-") for name in threads)


@with_shop()
async def test_plain_function_takes_batches_and_commits_with_outputs(shop):
    out = shop.app.stream("out", record=Leg, partition_by="who", partition_count=2)

    @shop.app.processor(shop.legs, commit="manual", **QUICK)
    def note(events):
        for batch in events.take(10).records():
            events.commit([(out, Leg(n=leg.n, who=leg.who)) for leg in batch])
            shop.seen.extend((leg.who, leg.n) for leg in batch)

    await shop.send_keys(300)
    async with shop.workers("a"):
        await until_seen(shop, 300)
    names = [out.names.partition(number).stream for number in range(2)]
    assert sum([await shop.redis.xlen(name) for name in names]) == 300


@with_shop()
async def test_outputs_and_offset_are_one_step(shop):
    """Outputs and offset are written in one step.

    The processor fails after every third commit and before every fifth. Each output is there once.
    """
    out = shop.app.stream("out", record=Leg, partition_by="who", partition_count=2)
    calls = [0]

    @shop.app.processor(
        shop.legs, commit="manual", backoff=(0.001, 0.001), max_attempts=1000, retry_for=0, **QUICK
    )
    async def copy(events):
        async for batch in events.take(7).records():
            calls[0] += 1
            if calls[0] % 5 == 0:
                raise ValueError("before")
            await events.commit([(out, Leg(n=leg.n, who=leg.who)) for leg in batch])
            if calls[0] % 3 == 0:
                raise ValueError("after")

    await shop.send_keys(500)

    async def copied():
        found = []
        for number in range(2):
            for _, fields in await shop.redis.xrange(out.names.partition(number).stream):
                leg = out.codec.decode(fields[b"d"])
                found.append((leg.who, leg.n))
        return found

    async def at_least(count):
        return len(await copied()) >= count

    async with shop.workers("a") as (start, stop):
        await until_true(lambda: at_least(200))
        await start("b")
        await stop("a")
        await until_true(lambda: at_least(500))
    found = await copied()
    assert len(found) == len(set(found)) == 500
    for key in {who for who, _ in found}:
        numbers = [n for who, n in found if who == key]
        assert numbers == sorted(numbers)


@with_shop(partition_count=1)
async def test_processor_is_given_as_many_uncommitted_as_prefetch_holds(shop):
    """A processor gets as many uncommitted events as `prefetch` allows.

    Events trickle in, so no read brings many. The processor still gets all events that it waits for
    before it commits.
    """
    committed = []

    @shop.app.processor(shop.legs, commit="manual", max_uncommitted=100, prefetch=100, **QUICK)
    async def note(events):
        hand = []
        async for leg in events.records():
            shop.seen.append(leg.n)
            hand.append(leg.n)
            if len(hand) == 100:
                await events.commit()
                committed.extend(hand)
                hand.clear()

    async with shop.workers("a"):
        for begin in range(0, 200, 10):
            await shop.send(*range(begin, begin + 10))
            await until_seen(shop, begin + 10)
    assert committed == list(range(200))


@with_shop()
async def test_who_commits_by_hand_and_does_not_is_told_so(shop):
    told = []

    @shop.app.processor(shop.legs, commit="manual", max_uncommitted=5, prefetch=20, **QUICK)
    async def forget(events):
        try:
            async for _ in events:
                pass
        except TooManyUncommitted as error:
            told.append(str(error))
            raise

    await shop.send(*range(10))
    async with shop.workers("a"):
        await until(lambda: told)
    assert "max_uncommitted=5" in told[0]
    assert "legs/" in told[0]


@with_shop()
async def test_what_was_gathered_for_a_batch_and_not_given_is_the_next_owners(shop):
    @shop.app.processor(shop.legs, **QUICK)
    async def note(events):
        async for batch in events.take(3, within=30).records():
            shop.seen.extend((leg.who, leg.n) for leg in batch)

    async with shop.workers("a") as (start, stop):
        await until_true(lambda: shop.at("note", shop.partition("a")))
        await shop.send(1)
        await pass_time(0.3)
        await start("b")
        await stop("a")
        await shop.send(2, 3)
        await until_seen(shop, 3)
    assert shop.numbers("a") == [1, 2, 3]


@with_shop()
async def test_what_lies_in_a_partition_can_be_read_back(shop):
    await shop.send(*range(2500))
    number = shop.partition("a")
    events = [event async for event in shop.legs.read(number)]
    assert [event.record.n for event in events] == list(range(2500))
    rest = [event.record.n async for event in shop.legs.read(number, after=events[2497].id)]
    assert rest == [2498, 2499]


@with_shop()
async def test_worker_whose_name_is_taken_waits_and_leaves_on_request(shop):
    """A worker whose name is taken waits for it, and leaves on request."""

    @shop.app.processor(shop.legs, **QUICK)
    async def note(events):
        async for leg in events.records():
            shop.seen.append((leg.who, leg.n))

    @shop.app.task(every=3600)
    def tick(): ...

    twin = Shop(shop.servers)

    @twin.app.processor(twin.legs, name="note", **QUICK)
    async def waits(events): ...

    @twin.app.task(every=3600)
    def never(): ...

    await shop.send_keys(10)
    async with shop.workers("a"):
        await until_seen(shop, 10)
        async with twin.workers("a") as (_, stop):
            await pass_time(1)
            async with asyncio.timeout(5):
                await stop("a")
    await twin.close()
