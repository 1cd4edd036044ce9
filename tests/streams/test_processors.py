"""Run processors with unusual behaviour.

No event is lost by it, and no event is blamed without a reason. The processors run on given
records, without servers: see `rink.testing.streams`.
"""

import asyncio
import contextlib
import logging
import sys
from itertools import islice

import pytest
from processors_support import (
    Brittle,
    Leg,
    Shop,
    have_batches_wait,
    note_one_by_one,
    numbers,
)

from rink.streams import Event
from rink.streams.failure_policy import Policy
from rink.testing.streams import process


class OddError(BaseException):
    """An error that is no Exception, like those of gevent and trio."""


def test_thread_that_takes_some_and_begins_anew_is_given_all():
    shop = Shop()

    @shop.processor
    def note(events):
        while batch := list(islice(events.records(), 10)):
            shop.seen += numbers(batch)

    outcome = shop.process()
    assert shop.seen == list(range(130))
    assert numbers(outcome.processed) == shop.seen


def test_thread_that_goes_from_one_by_one_to_batches_is_given_all():
    shop = Shop()

    @shop.processor
    def note(events):
        for leg in islice(events.records(), 7):
            shop.seen.append(leg.n)
        for batch in events.take(50).records():
            shop.seen += numbers(batch)

    shop.process()
    assert shop.seen == list(range(130))


def test_thread_that_breaks_off_has_processed_what_it_was_given():
    shop = Shop()

    @shop.processor
    def note(events):
        for leg in events.records():
            shop.seen.append(leg.n)
            if leg.n % 9 == 8:
                return

    shop.process()
    assert shop.seen == list(range(130))


@pytest.mark.parametrize("is_thread", [False, True])
def test_what_does_not_decode_quarantines_the_partition_right_before_it(is_thread):
    shop = Shop(on_error="quarantine")

    note_one_by_one(shop, is_thread)
    good = [shop.legs.codec.encode(Leg(n=n)) for n in range(130)]
    outcome = process(shop.app, "note", [*good[:71], b"no record", *good[71:]])
    assert shop.seen == list(range(71))
    assert numbers(outcome.processed) == shop.seen
    assert len(outcome.quarantined) == 1


@pytest.mark.parametrize("is_thread", [False, True])
def test_whatever_a_codec_raises_is_the_events_own_error(is_thread):
    shop = Shop(codec=Brittle(Leg))

    note_one_by_one(shop, is_thread)
    outcome = shop.process(notes={70: "brittle"})
    assert shop.seen == [n for n in range(130) if n != 70]
    [letter] = outcome.dead
    assert letter.error == "KeyError: 70"


def test_batch_that_is_given_up_while_it_fills_comes_again(monkeypatch):
    have_batches_wait(monkeypatch)
    shop = Shop()

    @shop.processor
    async def note(events):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                await events.take(200, within=10).next()
        async for leg in events.records():
            shop.seen.append(leg.n)

    shop.process()
    assert shop.seen == list(range(130))


@pytest.mark.parametrize("takes", [False, True])
def test_manual_processor_without_commit_does_not_stop_others(takes):
    shop = Shop(commit="manual")

    @shop.processor
    async def note(events):
        shop.seen.append(1)
        if takes:
            await events.take(1).next()

    while not shop.seen:  # a busy machine may call it late
        with pytest.raises(TimeoutError):
            shop.process(seconds=0.3)


def test_text_that_cannot_be_encoded_is_written_so_that_it_can(caplog):
    caplog.set_level(logging.CRITICAL, "rink")  # pytest-xdist cannot send such log lines
    shop = Shop(max_attempts=1)

    @shop.processor
    async def note(events):
        async for leg in events.records():
            if leg.n == 3:
                raise ValueError("bad \ud800")

    [letter] = shop.process(5).dead
    assert letter.error == r"ValueError: bad \ud800"
    letter.trace.encode()


def test_who_commits_several_at_once_has_only_the_culprit_given_up():
    shop = Shop(commit="manual", max_attempts=2)

    @shop.processor
    async def note(events):
        held = []
        async for leg in events.records():
            if leg.n == 33:
                raise ValueError(leg.n)
            held.append(leg)
            if len(held) == 10:
                await events.commit([(shop.out, one) for one in held])
                held = []
        if held:
            await events.commit([(shop.out, one) for one in held])

    outcome = shop.process(90)
    assert numbers(outcome.outputs["out"]) == [n for n in range(90) if n != 33]
    assert [letter.record.n for letter in outcome.dead] == [33]


def test_who_never_commits_what_is_left_loses_nothing_and_is_told(caplog):
    shop = Shop(commit="manual", max_attempts=2)
    failed = []

    @shop.processor
    async def note(events):
        held = []
        async for leg in events.records():
            if leg.n == 5 and not failed:
                failed.append(1)
                raise ValueError(leg.n)
            held.append(leg)
            if len(held) == 10:
                await events.commit([(shop.out, one) for one in held])
                held = []

    outcome = shop.process(90)
    assert numbers(outcome.outputs["out"]) == list(range(90))
    assert outcome.dead == []
    assert "then commit the rest" in caplog.text


def test_what_is_left_of_max_uncommitted_goes_to_who_commits_later():
    shop = Shop(commit="manual", max_uncommitted=256)

    @shop.processor
    async def note(events):
        batches = 0
        async for batch in events.take(100).records():
            shop.seen += numbers(batch)
            batches += 1
            if batches == 3:
                await events.commit()
                batches = 0

    outcome = shop.process(256)
    assert shop.seen == list(range(256))
    assert len(outcome.processed) == 256


@pytest.mark.parametrize("error", [StopIteration, StopAsyncIteration])
def test_thread_may_raise_what_a_future_cannot_hold(error):
    shop = Shop(max_attempts=1)

    @shop.processor
    def note(events):
        for leg in events.records():
            if leg.n == 3:
                raise error
            shop.seen.append(leg.n)

    outcome = shop.process(10)
    assert [letter.record.n for letter in outcome.dead] == [3]
    assert shop.seen[-1] == 9


def test_middleware_that_empties_a_batch_does_not_end_the_iteration():
    @contextlib.asynccontextmanager
    async def even(batch):
        yield [event for event in batch if event.record.n % 2 == 0]

    shop, calls = Shop(middleware=[even]), []

    @shop.processor
    async def note(events):
        calls.append(1)
        async for event in events:
            assert isinstance(event, Event)
            shop.seen.append(event.record.n)

    outcome = shop.process(20)
    assert shop.seen == list(range(0, 20, 2))
    assert len(outcome.processed) == 20
    assert calls == [1]


def test_auto_processor_may_commit_and_return():
    shop, calls = Shop(), []

    @shop.processor
    async def note(events):
        calls.append(1)
        async for batch in events.take(10).records():
            shop.seen += numbers(batch)
            await events.commit()
            return

    shop.process(30)
    assert shop.seen == list(range(30))


def test_pauses_between_tries_start_again_with_each_event(monkeypatch):
    class Pauses:
        in_a_row = most = 0

        def reset(self):
            self.in_a_row = 0

        def next(self):
            self.in_a_row += 1
            self.most = max(self.most, self.in_a_row)
            return 0.0

    pauses = Pauses()
    monkeypatch.setattr(Policy, "pauses", lambda _: pauses)
    shop = Shop(max_attempts=2, breaker=None)

    @shop.processor
    async def note(events):
        async for leg in events.records():
            raise ValueError(leg.n)

    assert len(shop.process(40).dead) == 40
    assert pauses.most <= 3


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("fails", ["entry", "exit"])
@pytest.mark.parametrize("is_thread", [False, True])
def test_batch_with_failed_middleware_is_not_finished_by_the_function(is_thread, fails, goes_on):
    failures = []

    @contextlib.asynccontextmanager
    async def ledger(batch):
        is_bad = len(failures) < 4
        if is_bad and fails == "entry":
            failures.append(batch)
            raise ConnectionError("away")
        yield
        if is_bad:
            failures.append(batch)
            raise ConnectionError("away")

    shop = Shop(middleware=[ledger], max_attempts=10)

    async def note(events):
        for _ in range(2 if goes_on else 1):
            with contextlib.suppress(ConnectionError):
                async for leg in events.records():
                    shop.seen.append(leg.n)

    def note_in_thread(events):
        for _ in range(2 if goes_on else 1):
            with contextlib.suppress(ConnectionError):
                for leg in events.records():
                    shop.seen.append(leg.n)

    shop.processor(note_in_thread if is_thread else note)
    outcome = shop.process(3)
    assert (numbers(outcome.processed), outcome.dead) == ([0, 1, 2], [])
    assert len(failures) == 4
    assert sorted(set(shop.seen)) == [0, 1, 2]
    assert shop.seen.count(0) == (1 if fails == "entry" else 5)


def test_error_that_cannot_be_printed_is_given_up_like_any_other():
    class MuteError(Exception):
        def __str__(self):
            raise KeyError("no")

    shop = Shop(max_attempts=2)

    @shop.processor
    async def note(events):
        async for _ in events.records():
            raise MuteError

    [letter] = shop.process(1).dead
    assert letter.error == "MuteError: (its __str__ raised KeyError)"


def test_thread_that_calls_exit_has_failed_and_ends_nothing_else():
    shop = Shop(max_attempts=2)

    @shop.processor
    def note(events):
        for _ in events.records():
            sys.exit(3)

    [letter] = shop.process(1).dead
    assert "raised SystemExit(3)" in letter.error


@pytest.mark.parametrize("error", [GeneratorExit, asyncio.CancelledError, OddError])
@pytest.mark.parametrize("is_thread", [False, True])
def test_error_that_is_no_exception_costs_its_event_and_nothing_else(error, is_thread):
    shop = Shop(max_attempts=2)

    def check(leg):
        if leg.n == 1:
            raise error
        shop.seen.append(leg.n)

    async def note(events):
        async for leg in events.records():
            check(leg)

    def note_in_thread(events):
        for leg in events.records():
            check(leg)

    shop.processor(note_in_thread if is_thread else note)
    [letter] = shop.process(3).dead
    assert letter.record.n == 1
    assert shop.seen == [0, 2]


def test_plain_wrapper_around_an_async_function_is_told_of(caplog):
    shop = Shop()

    async def note(events): ...

    @shop.processor
    def wrapper(events):
        if "which nobody runs" not in caplog.text:
            return note(events)
        shop.seen += numbers(events.records())
        return None

    assert numbers(shop.process(1).processed) == [0]
    assert shop.seen == [0]
