"""Test failing events and processors.

The tests cover retries, giving up, quarantine and cancelling.
"""

import asyncio
import contextlib
import itertools
import threading

import pytest
from workers_support import QUICK, Leg, pass_time, until, until_seen, with_shop

from rink.errors import StateError
from rink.event_loops import loop_time
from rink.streams import JsonCodec, PartitionFull, Worker, WorkerHalted


@with_shop()
async def test_event_that_always_fails_alone_becomes_a_dead_letter(shop):
    """An event that always fails becomes a dead letter; its neighbours do not."""

    @shop.app.processor(shop.legs, backoff=(0.001, 0.01), max_attempts=3, retry_for=0, **QUICK)
    async def note(events):
        async for batch in events.take(10).records():
            for leg in batch:
                if leg.n == 13:
                    raise ValueError("thirteen")
            shop.seen.extend((leg.who, leg.n) for leg in batch)

    await shop.send(*range(30))
    async with shop.workers("a"):
        await until_seen(shop, 29)
    assert shop.numbers("a") == [n for n in range(30) if n != 13]
    [letter] = await shop.dead("note", shop.partition("a"))
    assert letter["error"] == "ValueError: thirteen"
    assert letter["attempts"] == "3"
    assert '"n":13' in letter["d"]
    assert "raise ValueError" in letter["trace"]


@with_shop()
async def test_failed_event_of_records_alone_is_tried_again(shop):
    """Try again only the event that failed, of events that came singly."""
    tries = []

    @shop.app.processor(shop.legs, backoff=(0.001, 0.01), max_attempts=2, retry_for=0, **QUICK)
    async def note(events):
        async for leg in events.records():
            tries.append(leg.n)
            if leg.n == 3:
                raise ValueError("three")

    await shop.send(*range(6))
    async with shop.workers("a"):
        await until(lambda: len(tries) >= 7)
    assert tries == [0, 1, 2, 3, 3, 4, 5]


@with_shop()
async def test_plain_function_that_fails_is_tried_again_from_that_event_on(shop):
    tries = []

    @shop.app.processor(shop.legs, backoff=(0.001, 0.01), max_attempts=2, retry_for=0, **QUICK)
    def note(events):
        for leg in events.records():
            tries.append(leg.n)
            if leg.n == 3:
                raise ValueError("three")

    await shop.send(*range(6))
    async with shop.workers("a"):
        await until(lambda: 5 in tries)
    assert [n for n in tries if n != 3] == [0, 1, 2, 4, 5]
    [letter] = await shop.dead("note", shop.partition("a"))
    assert '"n":3' in letter["d"]


@with_shop()
async def test_what_is_no_record_becomes_a_dead_letter_at_once(shop):
    @shop.app.processor(shop.legs, **QUICK)
    async def note(events):
        async for leg in events.records():
            shop.seen.append((leg.who, leg.n))

    number = shop.partition("a")
    await shop.send(1)
    for data in (b"not json", b'{"n":"2","who":"a"}', b'{"who":"a"}', b"[1]"):
        await shop.redis.xadd(shop.names(number).stream, {"d": data})
    await shop.send(2)
    await shop.redis.xadd(shop.names(number).stream, {"other": b"x"})
    await shop.send(3)
    async with shop.workers("a"):
        await until_seen(shop, 3)
    assert shop.numbers("a") == [1, 2, 3]
    letters = await shop.dead("note", number)
    assert [letter["d"] for letter in letters] == [
        "not json", '{"n":"2","who":"a"}', '{"who":"a"}', "[1]", "",
    ]  # fmt: skip
    assert "'2' is no int @ $.n" in letters[1]["error"]
    assert "[1] is no object" in letters[3]["error"]
    assert "n" in letters[2]["error"]


@with_shop()
async def test_quarantined_partition_waits_and_the_others_go_on(shop):
    """A quarantined partition waits for an operator, and the others go on."""
    broken = [True]

    @shop.app.processor(
        shop.legs,
        on_error="quarantine",
        backoff=(0.001, 0.01),
        max_attempts=2,
        retry_for=0,
        **QUICK,
    )
    async def note(events):
        async for leg in events.records():
            if leg.note == "bad" and broken[0]:
                raise ValueError("bad")
            shop.seen.append((leg.who, leg.n))

    bad, good = shop.of_key(0), shop.of_key(1)
    await shop.legs.send(Leg(n=1, who=bad))
    await shop.legs.send(Leg(n=2, who=bad, note="bad"))
    await shop.legs.send(Leg(n=3, who=bad))
    async with shop.workers() as (start, _):
        worker = await start("a")
        await shop.send(*range(50), who=good)
        await until_seen(shop, 51)
        assert "ValueError: bad" in await shop.quarantined("note", 0)
        assert shop.numbers(bad) == [1]
        broken[0] = False
        opened = await shop.app.connections.open()
        place = shop.app.processors["note"].place(0)
        await opened.store.run("unquarantine", place.keys, processor="note")
        await until(lambda: shop.numbers(bad) == [1, 2, 3])
        labels = {"app": "shop", "processor": "note", "stream": "legs"}
        count = worker.metrics.registry.get_sample_value(
            "rink_streams_handover_seconds_count", labels
        )
        assert count == 4, "unquarantine is no hand-over: one for each partition"


@with_shop()
async def test_who_halts_quarantines_the_partition_and_ends_its_worker_alone(shop):
    @shop.app.processor(
        shop.legs, on_error="halt", backoff=(0.001, 0.01), max_attempts=1, retry_for=0, **QUICK
    )
    async def note(events):
        async for leg in events.records():
            if leg.note == "bad":
                raise ValueError("bad")
            shop.seen.append((leg.who, leg.n))

    bad, good = shop.of_key(0), shop.of_key(1)
    async with shop.workers("a", "b") as (_start, stop):
        await shop.send(1, who=good)
        await until_seen(shop, 1)
        await shop.legs.send(Leg(n=2, who=bad, note="bad"))
        await shop.quarantined("note", 0)
        await pass_time(0.5)
        ended = []
        for name in ("a", "b"):
            try:
                await asyncio.wait_for(stop(name), 10)
            except WorkerHalted as error:
                ended.append(str(error))
        assert len(ended) == 1
        assert "ValueError: bad" in ended[0]


@with_shop()
async def test_processor_that_returns_without_an_event_is_called_with_pauses(shop):
    """A processor that returns without an event is called again, with pauses."""
    calls = []

    @shop.app.processor(shop.legs, backoff=(0.05, 0.05), **QUICK)
    async def lazy(events):
        calls.append(events.partition)

    began = loop_time()
    async with shop.workers("a"):
        await until(lambda: calls)
        await pass_time(0.3)
    # A pause takes 25 ms on average. Without pauses, there would be thousands of calls a second.
    assert len(calls) < 4 * (10 + 2 * 40 * (loop_time() - began))


@with_shop()
async def test_processor_that_returns_has_processed_what_it_was_given(shop):
    @shop.app.processor(shop.legs, **QUICK)
    async def one_batch(events):
        async for batch in events.take(5).records():
            shop.seen.extend((leg.who, leg.n) for leg in batch)
            return

    await shop.send(*range(23))
    async with shop.workers("a"):
        await until_seen(shop, 23)
    assert shop.numbers("a") == list(range(23))


@with_shop()
async def test_processor_beyond_its_grace_is_cancelled_and_its_event_repeats(shop):
    """A processor beyond its grace is cancelled, and its event comes again."""
    cancelled = []

    @shop.app.processor(shop.legs, grace=0.4, **QUICK)
    async def slow(events):
        async for leg in events.records():
            shop.seen.append((leg.who, leg.n))
            if leg.n == 1 and len(shop.seen) == 2:
                try:
                    await pass_time(60)
                finally:
                    cancelled.append(loop_time())

    await shop.send(0, 1, 2)
    async with shop.workers("a") as (start, stop):
        await until_seen(shop, 2)
        began = loop_time()
        await start("b")
        await stop("a")
        assert 0.2 < cancelled[0] - began < 10  # it would sleep 60 s
        await until_seen(shop, 4)
    assert shop.numbers("a") == [0, 1, 1, 2]


@with_shop(partition_size=20)
async def test_full_partition_makes_senders_wait_and_then_says_so(shop):
    go = asyncio.Event()

    @shop.app.processor(shop.legs, **QUICK)
    async def note(events):
        await go.wait()
        async for leg in events.records():
            shop.seen.append((leg.who, leg.n))

    async with shop.workers("a"):
        await shop.send(*range(20))
        with pytest.raises(PartitionFull, match="20 events"):
            await shop.legs.send(Leg(n=20, who="a"), timeout=1)
        sending = asyncio.create_task(shop.send(*range(20, 100)))
        await pass_time(0.2)
        assert not sending.done()
        go.set()
        await sending
        await until_seen(shop, 100)
    assert shop.numbers("a") == list(range(100))


@with_shop(partition_count=4)
async def test_another_partition_count_is_refused(shop):
    await shop.send(1)
    other = shop.servers.app("shop")
    legs = other.stream("legs", record=Leg, partition_by="who", partition_count=8)
    with pytest.raises(StateError, match="partition_count=4"):
        await legs.send(Leg(n=1, who="a"))
    await other.close()


@with_shop()
async def test_worker_is_refused_that_would_write_outputs_to_other_partitions(shop):
    out = shop.app.stream("out", record=Leg, partition_by="who", partition_count=4)
    await out.send(Leg(n=1, who="a"))
    other = shop.servers.app("shop")
    legs = other.stream("legs", record=Leg, partition_by="who", partition_count=4)
    other.stream("out", record=Leg, partition_by="who", partition_count=8)

    @other.processor(legs)
    async def note(events):
        raise AssertionError("it must not begin")

    with pytest.raises(StateError, match="'out' has partition_count=4"):
        await Worker(other).run()
    await other.close()


@with_shop()
async def test_outputs_to_another_apps_stream_go_where_it_has_them_or_nowhere(shop):
    office = shop.servers.app("office")
    letters = office.stream("letters", record=Leg, partition_by="who", partition_count=4)
    await letters.send(Leg(n=0, who="a"))
    wrong = shop.servers.app("office").stream(
        "letters", record=Leg, partition_by="who", partition_count=8
    )
    target = wrong

    @shop.app.processor(shop.legs, commit="manual", backoff=(0.01, 0.01), **QUICK)
    async def write(events):
        async for leg in events.records():
            await events.commit([(target, leg)])
            shop.seen.append((leg.who, leg.n))

    await shop.send(1, 2)
    async with shop.workers("a"):
        await pass_time(1)
        assert shop.seen == []
        target = letters
        await until_seen(shop, 2)
    number = letters.partition_of(Leg(n=0, who="a"))
    assert [one.record.n async for one in letters.read(number)] == [0, 1, 2]
    assert await shop.dead("write", shop.partition("a")) == []
    await office.close()


@with_shop()
async def test_send_of_many_that_is_cancelled_sends_no_more(shop):
    given = []

    async def slowly():
        for n in itertools.count():
            given.append(n)
            yield Leg(n=n, who="a")
            await pass_time(0.01)

    sending = asyncio.create_task(shop.legs.send_many(slowly()))
    await until(lambda: len(given) > 5)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert await shop.redis.xlen(shop.names(shop.partition("a")).stream) == 0


@with_shop()
async def test_cancelled_processor_that_returns_has_finished_no_event(shop):
    """A processor that is cancelled and then returns has finished no event."""

    @shop.app.processor(shop.legs, grace=0.4, **QUICK)
    async def note(events):
        async for leg in events.records():
            shop.seen.append((leg.who, leg.n))
            if len(shop.seen) == 1:
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.Event().wait()
                return

    await shop.send(0, 1)
    async with shop.workers("a") as (start, stop):
        await until_seen(shop, 1)
        await stop("a")
        await start("b")
        await until_seen(shop, 3)
    assert shop.numbers("a") == [0, 0, 1]


@with_shop()
async def test_middleware_goes_around_each_batch(shop):
    told = []

    @contextlib.asynccontextmanager
    async def timing(batch):
        told.append(("in", len(batch)))
        try:
            yield
        except ValueError:
            told.append("failed")
            raise
        told.append("out")

    @shop.app.processor(
        shop.legs, middleware=[timing], backoff=(0.001, 0.01), max_attempts=1, retry_for=0, **QUICK
    )
    async def note(events):
        async for batch in events.take(2).records():
            shop.seen.extend((leg.who, leg.n) for leg in batch)
            if batch[0].n == 2 and len(batch) == 1:
                raise ValueError

    await shop.send(0, 1)
    await shop.send(2)
    async with shop.workers("a"):
        await until_seen(shop, 3)
        await until(lambda: "failed" in told)
    assert told[:2] == [("in", 2), "out"]


@with_shop()
async def test_planned_stop_is_no_crash_whatever_the_processor_does(shop):
    """A planned stop never counts as a crash.

    A thread outlasts its grace with a marked event. The next owner need not be careful.
    """
    go = threading.Event()

    @shop.app.processor(shop.legs, grace=0.3, **QUICK)
    def stuck(events):
        for leg in events.records():
            shop.seen.append((leg.who, leg.n))
            go.wait(20)

    number = shop.partition("a")
    await shop.send(1)
    async with shop.workers("a") as (start, stop):
        await until_seen(shop, 1)
        await shop.redis.hset(
            shop.names(number).at("stuck"), mapping={"format": 1, "suspect": "1-1"}
        )
        await start("b")
        stopping = asyncio.create_task(stop("a"))
        await until_seen(shop, 2)
        assert "unclean" not in await shop.at("stuck", number)
        go.set()
        await stopping


@with_shop()
async def test_unquarantine_forgets_the_crashes_before(shop):
    tries = []

    @shop.app.processor(shop.legs, on_error="quarantine", **QUICK)
    async def note(events):
        async for leg in events.records():
            tries.append(leg.n)

    number = shop.partition("a")
    await shop.send(1)
    [(entry_id, _)] = await shop.redis.xrange(shop.names(number).stream)
    await shop.redis.hset(
        shop.names(number).at("note"), mapping={"format": 1, f"end:{entry_id.decode()}": "2"}
    )
    async with shop.workers("a"):
        assert "3 processes crashed" in await shop.quarantined("note", number)
        assert tries == []
        opened = await shop.app.connections.open()
        place = shop.app.processors["note"].place(number)
        await opened.store.run("unquarantine", place.keys, processor="note")
        await until(lambda: tries == [1])


@with_shop()
async def test_wrong_type_at_an_outputs_key_blames_no_event(shop):
    out = shop.app.stream("out", record=Leg, partition_by="who", partition_count=1)
    key = out.names.partition(0).stream
    await shop.redis.set(key, "no stream")

    @shop.app.processor(shop.legs, commit="manual", max_attempts=1, retry_for=0, **QUICK)
    async def copy(events):
        async for leg in events.records():
            await events.commit([(out, Leg(n=leg.n, who=leg.who))])
            shop.seen.append((leg.who, leg.n))

    await shop.send(1, 2, 3)
    async with shop.workers("a"):
        await pass_time(1)
        await shop.redis.delete(key)
        await until_seen(shop, 3)
    assert shop.numbers("a") == [1, 2, 3]
    assert await shop.dead("copy", shop.partition("a")) == []


@with_shop()
async def test_surprise_costs_one_partition_and_not_the_worker(shop):
    """An output that cannot be sent at all, as a codec may make one."""

    class Odd(JsonCodec):
        def encode(self, record):
            return {"no": "bytes"} if record.n == 1 else super().encode(record)

    out = shop.app.stream("out", record=Leg, partition_by="who", codec=Odd(Leg))

    @shop.app.processor(shop.legs, commit="manual", **QUICK)
    async def copy(events):
        async for leg in events.records():
            await events.commit([(out, Leg(n=leg.n, who=leg.who))])
            shop.seen.append((leg.who, leg.n))

    bad, good = shop.of_key(0), shop.of_key(1)
    async with shop.workers("a"):
        await shop.send(1, who=bad)
        await shop.send(*range(2, 50), who=good)
        await until_seen(shop, 48)
    assert shop.numbers(bad) == []
