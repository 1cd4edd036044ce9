"""Iterate over events, with middleware, in a task or in a thread.

Only one place at a time may iterate.
"""

import asyncio
import contextlib
import contextvars
import decimal
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from jumping import jumping
from processors_support import Leg, Shop, have_batches_wait, numbers, turns

import rink.testing.streams as kit
from rink import ConfigError, UsageError
from rink.streams import RedisUnavailable
from rink.streams.consumer.delivery import Delivery
from rink.streams.processor_events import Events


def test_two_iterations_at_once_are_refused_and_nothing_is_lost(caplog):
    shop, calls = Shop(), []

    async def note_one(events):
        async for leg in events.records():
            await asyncio.sleep(0)
            shop.seen.append(leg.n)

    @shop.processor
    async def note(events):
        calls.append(events)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(note_one(events))
            if len(calls) == 1:
                tasks.create_task(note_one(events))

    shop.process()
    assert len(calls) == 2
    assert sorted(set(shop.seen)) == list(range(130))
    assert "another iteration" in caplog.text


def test_what_a_task_group_raises_of_ours_is_no_events_fault():
    shop, calls = Shop(max_attempts=1), []

    async def commit(events):
        if len(calls) == 1:
            raise RedisUnavailable("Redis is away", server="here")
        await events.commit()

    @shop.processor
    async def note(events):
        calls.append(events)
        async for leg in events.records():
            async with asyncio.TaskGroup() as tasks:
                shop.seen.append(leg.n)
                tasks.create_task(commit(events))

    outcome = shop.process(3)
    assert shop.seen == [0, 0, 1, 2]
    assert len(calls) == 2
    assert not outcome.dead


def test_task_group_that_failed_ends_no_later_call():
    """Call again after a failed task group.

    Before Python 3.13, the group may leave its own request to cancel in the task.
    """
    shop, calls = Shop(max_attempts=3), []

    async def note_one(leg):
        if leg.n == 3 and len(calls) == 1:
            raise ValueError("not now")
        shop.seen.append(leg.n)

    @shop.processor
    async def note(events):
        calls.append(events)
        async for leg in events.records():
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(note_one(leg))
            if leg.n == 5:
                return  # a processor may return before the end

    outcome = shop.process(10)
    assert shop.seen[:3] == [0, 1, 2]
    assert sorted(set(shop.seen)) == list(range(10))
    assert not outcome.dead


@pytest.mark.parametrize("is_thread", [False, True])
def test_middleware_context_stays_in_its_task_and_reaches_processors(is_thread):
    current, entered = contextvars.ContextVar("current"), []

    @contextlib.asynccontextmanager
    async def around(batch):
        entered.append(batch[0].record.n)
        token = current.set(batch[0].record.n)
        async with asyncio.timeout(10):
            yield
        current.reset(token)

    shop = Shop(middleware=[around])

    async def note(events):
        async for leg in events.records():
            shop.seen.append((leg.n, current.get()))

    def note_in_thread(events):
        for leg in events.records():
            shop.seen.append((leg.n, current.get()))

    shop.processor(note_in_thread if is_thread else note)
    outcome = shop.process(10)
    assert shop.seen == [(n, n) for n in range(10)]
    assert entered == list(range(10))
    assert not outcome.dead


def test_older_of_two_iterations_is_refused():
    shop, calls = Shop(), []

    @shop.processor
    async def note(events):
        calls.append(1)
        async for leg in events.records():
            shop.seen.append(leg.n)
            if len(calls) == 1 and leg.n == 3:
                async for batch in events.take(2).records():
                    shop.seen += numbers(batch)
                    break

    shop.process(10)
    assert len(calls) == 2, "the first iteration did not go on after the second had begun"
    assert sorted(set(shop.seen)) == list(range(10))


def test_second_thread_that_iterates_is_refused():
    shop, refused = Shop(), []

    @shop.processor
    def note(events):
        for leg in events.records():
            shop.seen.append(leg.n)
            if leg.n == 3:
                with (
                    ThreadPoolExecutor(1) as pool,
                    pytest.raises(UsageError, match="another thread"),
                ):
                    pool.submit(next, events.records()).result()
                refused.append(leg.n)

    shop.process(10)
    assert refused == [3]
    assert shop.seen == list(range(10))


@pytest.mark.parametrize("is_thread", [False, True])
def test_time_limit_in_middleware_ends_neither_worker_nor_partition(is_thread):
    @contextlib.asynccontextmanager
    async def limit(batch):
        async with asyncio.timeout(0 if batch[0].record.n == 3 else None):
            yield

    shop = Shop(middleware=[limit], max_attempts=2)

    async def note(events):
        async for leg in events.records():
            shop.seen.append(leg.n)
            if leg.n == 3:
                await asyncio.Event().wait()

    def note_in_thread(events):
        for leg in events.records():
            shop.seen.append(leg.n)

    shop.processor(note_in_thread if is_thread else note)
    outcome = shop.process(6)
    if is_thread:  # a thread, which no timeout can end
        assert shop.seen == list(range(6))
    else:
        assert shop.seen == [0, 1, 2, 3, 3, 4, 5]
        [letter] = outcome.dead
        assert "a time limit has passed" in letter.error


async def first_of(events, within):
    """Return the first batch; [] if there is none."""
    return await anext(aiter(events.take(20, within)), [])


def test_commit_from_aside_commits_nothing_that_was_not_given(monkeypatch):
    have_batches_wait(monkeypatch)
    shop = Shop(commit="manual")

    @shop.processor
    async def note(events):
        first = asyncio.create_task(first_of(events, 60.0))
        await turns()  # the batch has ten events, and waits for more
        await events.commit()
        first.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await first
        async for batch in events.take(20).records():
            shop.seen += numbers(batch)
            await events.commit()

    outcome = shop.process(10)
    assert shop.seen == list(range(10))
    assert len(outcome.processed) == 10


@jumping
async def process_in_virtual_time(shop, count):
    """Run the processor in a time that passes only while all tasks wait."""
    legs = [Leg(n=n) for n in range(count)]
    await kit._process(shop.app.processors["note"], legs, 20.0)


def test_who_asks_while_another_one_waits_is_refused(monkeypatch):
    have_batches_wait(monkeypatch)
    shop, refused = Shop(), []

    @shop.processor
    async def note(events):
        first = asyncio.create_task(first_of(events, 0.05))
        await turns()
        with pytest.raises(UsageError, match="two tasks at once"):
            await anext(aiter(events))
        refused.append(1)
        shop.seen += numbers(event.record for event in await first)

    process_in_virtual_time(shop, 10)
    assert refused == [1]
    assert shop.seen == list(range(10))


def test_thread_sees_context_of_middleware_and_keeps_its_own():
    current = contextvars.ContextVar("current", default="-")

    @contextlib.asynccontextmanager
    async def around(batch):
        if batch[0].record.n != 1:
            yield
            return
        token = current.set("ann")
        yield
        current.reset(token)

    shop = Shop(middleware=[around])

    @shop.processor
    def note(events):
        with decimal.localcontext() as mine:
            mine.prec = 50
            for leg in events.records():
                shop.seen.append((leg.n, current.get(), decimal.getcontext().prec))

    shop.process(3)
    assert shop.seen == [(0, "-", 50), (1, "ann", 50), (2, "-", 50)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0,), "count=0 must be 1 or more"),
        ((257,), "1 to max_uncommitted=256"),
        ((1.5,), "count must be a whole number, not 1.5"),
        (("5",), "count must be a whole number, not '5'"),
        ((None,), "count must be a whole number, not None"),
        ((5, -1), "within=-1.0 must be 0 or more"),
        ((5, "1"), "within must be a number of seconds, not '1'"),
        ((5, None), "within must be a number of seconds, not None"),
        ((5, float("nan")), "within=nan must be 0 or more"),
    ],
)
def test_take_refuses_what_is_no_count_or_no_time(given, message):
    shop = Shop()

    @shop.processor
    async def note(events):
        with pytest.raises(ConfigError, match=message):
            events.take(*given)
        shop.seen.append(1)
        async for _ in events:
            pass

    shop.process(1)
    assert shop.seen == [1]


@pytest.mark.parametrize("count", [-1, 1.5, "1"])
def test_commit_refuses_what_is_no_count(count):
    shop = Shop(commit="manual")

    @shop.processor
    async def note(events):
        async for batch in events.take(2):
            await events.commit(count=0)
            with pytest.raises(ConfigError, match="count"):
                await events.commit(count=count)
            shop.seen += [event.record.n for event in batch]
            await events.commit(count=len(batch))

    outcome = shop.process(2)
    assert shop.seen == [0, 1]
    assert numbers(outcome.processed) == [0, 1]


def test_batch_larger_than_max_uncommitted_is_refused():
    narrow = SimpleNamespace(processor=SimpleNamespace(max_uncommitted=10))
    with pytest.raises(ConfigError, match="max_uncommitted=10"):
        Events(Delivery(narrow)).take(11)
