"""Measure how long a partition waits after errors, in virtual time.

The kit's partition has the policy of a worker.
"""

import asyncio
import logging

import pytest
from jumping import jumping, pass_time
from processors_support import Leg, Shop, numbers

import rink.testing.streams as kit
from rink.streams.consumer.buffer import DATA

pytestmark = pytest.mark.timeout(60)
"""An hour of virtual time takes a second; where nothing ends, more of it passes soon."""


@pytest.fixture(autouse=True)
def quiet(monkeypatch, caplog):
    monkeypatch.setattr(kit, "_POLL_INTERVAL_S", 1.0)
    caplog.set_level(logging.CRITICAL, "rink")


class Late(kit._Partition):
    """A partition whose events come later."""

    first_after = 0

    def _feed(self, owner):
        if asyncio.get_running_loop().time() >= 1000 + self.first_after:
            super()._feed(owner)

    async def _over(self, owner):
        await pass_time(self.first_after)
        self._feed(owner)
        return await super()._over(owner)


def run(shop, data=None, count=10, first_after=0):
    """Run the processor in one partition, as a worker does.

    Returns:
        The results, and the seconds that passed.
    """
    data = data or [shop.legs.codec.encode(Leg(n=n)) for n in range(count)]
    outcome, took = kit.Outcome(), []

    @jumping
    async def body():
        now = asyncio.get_running_loop().time
        began = now()
        fields = [[DATA, one] for one in data]
        partition = Late(shop.app.processors["note"], 0, fields, outcome, asyncio.Event())
        partition.first_after = first_after
        await partition.run()
        took.append(now() - began)

    body()
    return outcome, took[0]


def failing(shop, at, error, until=None):
    """Declare a processor that fails at some events until a time.

    It notes its tries.
    """
    tries = []

    @shop.processor
    async def note(events):
        async for leg in events.records():
            now = asyncio.get_running_loop().time()
            tries.append(leg.n)
            if at(leg) and (until is None or now < 1000 + until):
                raise error
            shop.seen.append(leg.n)

    return tries


def test_poison_event_is_given_up_after_ten_minutes_and_the_rest_goes_on():
    shop = Shop()
    tries = failing(shop, lambda leg: leg.n == 3, ValueError("three"))
    outcome, took = run(shop)
    assert numbers(outcome.processed) == [n for n in range(10) if n != 3]
    [letter] = outcome.dead
    assert 600 <= took < 660
    assert letter.attempts == tries.count(3)
    assert 15 < letter.attempts < 120


def test_error_that_lasts_nine_minutes_costs_no_event():
    shop = Shop()
    failing(shop, lambda leg: leg.n == 3, ValueError("three"), until=540)
    outcome, _ = run(shop)
    assert numbers(outcome.processed) == list(range(10))
    assert outcome.dead == []


def test_max_attempts_holds_where_retry_for_is_nothing():
    shop = Shop(retry_for=0, max_attempts=12)
    tries = failing(shop, lambda leg: leg.n == 3, ValueError("three"))
    outcome, _ = run(shop)
    assert [letter.attempts for letter in outcome.dead] == [12]
    assert tries.count(3) == 12


def test_outage_of_fifty_minutes_costs_no_event_and_tries_few_times():
    shop = Shop()
    tries = failing(shop, lambda leg: leg.n >= 3, ConnectionError("away"), until=3000)
    outcome, took = run(shop)
    assert shop.seen == list(range(10))
    assert outcome.dead == []
    assert outcome.quarantined == {}
    assert 3000 <= took < 3060
    assert tries.count(3) < 400, "its pauses have grown"


def test_outage_of_more_than_an_hour_quarantines_the_partition():
    shop = Shop()
    failing(shop, lambda leg: leg.n >= 3, ConnectionError("away"))
    outcome, took = run(shop)
    assert 3600 <= took < 3660
    assert numbers(outcome.processed) == [0, 1, 2]
    assert outcome.dead == []
    [reason] = outcome.quarantined.values()
    assert "ConnectionError: away" in reason
    assert "transient_for=3600 s" in reason


def test_outage_with_a_success_between_begins_its_hour_anew():
    """Fail at every second event.

    Such a service delays the processor, and never stops it.
    """
    shop, ends = Shop(transient_for=100), {}

    @shop.processor
    async def note(events):
        async for leg in events.records():
            now = asyncio.get_running_loop().time()
            if now < ends.setdefault(leg.n, now + 80):
                raise TimeoutError("slow")
            shop.seen.append(leg.n)

    outcome, took = run(shop)
    assert shop.seen == list(range(10))
    assert outcome.quarantined == {}
    assert took > 800


def test_outage_before_an_idle_time_is_not_counted_with_one_after_it():
    """Fail at first, and again hours later.

    The connection could not be made at first. It breaks when an event comes after an idle time.
    """
    shop, calls = Shop(transient_for=100), []

    @shop.processor
    async def note(events):
        calls.append(1)
        if len(calls) < 5:
            raise ConnectionError("not up yet")
        async for leg in events.records():
            if len(calls) < 8:
                raise ConnectionError("gone again")
            shop.seen.append(leg.n)

    outcome, took = run(shop, count=1, first_after=5000)
    assert shop.seen == [0]
    assert outcome.quarantined == {}
    assert took > 5000


def test_outage_as_seen_by_batches_leaves_them_together():
    """Repeat a batch that failed in an outage as a batch.

    No event comes alone after it.
    """
    shop, batches = Shop(), []

    @shop.processor
    async def note(events):
        async for batch in events.take(5).records():
            batches.append(len(batch))
            if len(batches) < 20:
                raise ConnectionError("away")
            shop.seen += numbers(batch)

    outcome, _ = run(shop)
    assert shop.seen == list(range(10))
    assert set(batches) == {5}
    assert len(outcome.processed) == 10


def test_outage_reason_names_an_event_only_where_one_was_in_hand():
    """Name the event, since `unquarantine --skip` skips it."""
    for count, begins in ((1, "event 1-0 of "), (5, "partition ")):
        shop = Shop(transient_for=1)

        @shop.processor
        async def note(events, count=count):
            async for _ in events.take(count):
                raise ConnectionError("away")

        outcome, _ = run(shop)
        [reason] = outcome.quarantined.values()
        assert reason.startswith(begins)


def test_max_attempts_are_not_used_up_by_what_passes():
    shop, errors = Shop(retry_for=0, max_attempts=2), [ValueError, *[OSError(113, "no route")] * 9]
    tries = failing_in_turn(shop, [*errors, None])
    outcome, _ = run(shop)
    assert outcome.dead == []
    assert tries.count(1) == 11


def failing_in_turn(shop, errors):
    """Declare a processor that fails at event 1 with these errors in turn.

    After them it fails no more.
    """
    tries, errors = [], list(errors)

    @shop.processor
    async def note(events):
        async for leg in events.records():
            tries.append(leg.n)
            if leg.n == 1 and errors and (error := errors.pop(0)):
                raise error
            shop.seen.append(leg.n)

    return tries


@pytest.mark.parametrize("on_error", ["quarantine", "halt"])
def test_quarantine_too_waits_for_ten_minutes(on_error):
    shop = Shop(on_error=on_error)
    failing(shop, lambda leg: leg.n == 3, ValueError("three"))
    outcome, took = run(shop)
    assert 600 <= took < 660
    assert outcome.dead == []
    assert "ValueError: three" in outcome.quarantined[0]


def test_bad_code_is_stopped_by_the_breaker_at_the_fifth_event():
    shop = Shop()
    failing(shop, lambda leg: True, AttributeError("seat"))
    outcome, took = run(shop)
    assert len(outcome.dead) == 4
    assert 3000 <= took < 3300
    assert (
        "5 events in a row failed, the first: event 1-0: AttributeError" in outcome.quarantined[0]
    )


# ── records that do not decode ───────────────────────────────────────────────────────────────────


def legs(shop, text):
    """Return records as they lie in Redis: `.` decodes, `x` does not."""
    return [
        shop.legs.codec.encode(Leg(n=n)) if one == "." else b'{"who":"a"}'
        for n, one in enumerate(text)
    ]


@pytest.mark.parametrize("text", ["xxxxx", "..xxxxx..", "xxxxxxxxxxxx"])
def test_five_that_do_not_decode_quarantine_before_the_first(text):
    shop = Shop()
    failing(shop, lambda leg: False, None)
    outcome, took = run(shop, legs(shop, text))
    assert outcome.dead == []
    assert shop.seen == list(range(text.index("x")))
    [reason] = outcome.quarantined.values()
    assert reason.startswith(f"event {text.index('x') + 1}-0 of ")
    assert "decoding fails for the next 4 events, too" in reason
    assert took < 1


@pytest.mark.parametrize("text", [".x.", "xxxx.", "xx.xx.x."])
def test_few_that_do_not_decode_are_given_up_at_once(text):
    shop = Shop()
    failing(shop, lambda leg: False, None)
    outcome, took = run(shop, legs(shop, text))
    assert len(outcome.dead) == text.count("x")
    assert shop.seen == [n for n, one in enumerate(text) if one == "."]
    assert took < 1


def test_last_one_that_does_not_decode_is_given_up_after_ten_minutes():
    shop = Shop()
    failing(shop, lambda leg: False, None)
    outcome, took = run(shop, legs(shop, "..x"))
    assert len(outcome.dead) == 1
    assert 600 <= took < 610


def test_half_that_do_not_decode_are_stopped_by_the_breaker():
    shop = Shop()
    failing(shop, lambda leg: False, None)
    outcome, _ = run(shop, legs(shop, "x." * 80))
    assert len(outcome.dead) == 49
    assert "50 of the last 99 events failed" in outcome.quarantined[0]


@pytest.mark.parametrize("prefetch", [1, 2, 4])
def test_few_in_memory_decide_where_no_more_can_be(prefetch):
    shop = Shop(prefetch=prefetch, max_uncommitted=1)
    failing(shop, lambda leg: False, None)
    outcome, took = run(shop, legs(shop, "..xxxxxxx"))
    assert len(outcome.dead) == (4 if prefetch == 1 else 0)
    assert len(outcome.quarantined) == 1
    assert took < 1


def test_odd_one_behind_events_in_hand_is_given_up_at_once():
    """Give up an event behind in-flight events.

    A processor with manual commits may commit those only when it gets more.
    """
    shop = Shop(commit="manual")

    @shop.processor
    async def note(events):
        async for batch in events.take(3).records():
            shop.seen += numbers(batch)
            if len(shop.seen) == 8:
                await events.commit()

    outcome, took = run(shop, legs(shop, "..x......x"))
    assert shop.seen == [0, 1, 3, 4, 5, 6, 7, 8]
    assert len(outcome.dead) == 2
    assert took >= 600, "of the last one nothing is known, and nothing is in hand"


def test_breaker_of_none_gives_all_up_at_once():
    shop = Shop(breaker=None)
    failing(shop, lambda leg: False, None)
    outcome, took = run(shop, legs(shop, "x" * 150 + "."))
    assert len(outcome.dead) == 150
    assert took < 1


def test_codec_that_meets_an_outage_blames_no_event():
    shop, ends = Shop(), 1300.0

    class OverTheWire(type(shop.legs.codec)):
        def decode(self, data):
            if asyncio.get_running_loop().time() < ends:
                raise ConnectionError("the registry of schemas is away")
            return super().decode(data)

    shop.legs.codec = OverTheWire(Leg)
    failing(shop, lambda leg: False, None)
    outcome, took = run(shop)
    assert shop.seen == list(range(10))
    assert outcome.dead == []
    assert took >= 300


@pytest.mark.parametrize("text", ["..xxxxx", "..x"])
def test_processor_that_catches_all_is_quarantined_all_the_same(text):
    shop = Shop(on_error="quarantine")

    @shop.processor
    async def note(events):
        try:
            async for leg in events.records():
                shop.seen.append(leg.n)
        except Exception:
            shop.seen.append("caught")

    outcome, _ = run(shop, legs(shop, text))
    assert shop.seen == [0, 1, "caught"]
    assert len(outcome.quarantined) == 1


# ── pauses ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [None, 2, 4])
def test_pause_amid_events_gives_none_until_it_is_resumed(count):
    shop, resumed = Shop(), []

    @shop.processor
    async def note(events):
        loop, owner = asyncio.get_running_loop(), events._owner
        batches = events.take(count) if count else one_by_one(events)
        async for batch in batches:
            for event in batch:
                shop.seen.append(event.record.n)
                if event.record.n == 3:
                    loop.call_later(
                        100, lambda: (resumed.append(list(shop.seen)), owner.pause(False))
                    )
                    owner.pause(True)

    outcome, took = run(shop)
    assert resumed == [[0, 1, 2, 3]]
    assert shop.seen == list(range(10))
    assert len(outcome.processed) == 10
    assert took >= 100


def pause_for(owner, seconds):
    """Pause an owner once."""
    if not hasattr(owner, "was_paused"):
        owner.was_paused = True
        owner.pause(True)
        asyncio.get_running_loop().call_later(seconds, owner.pause, False)


@pytest.mark.parametrize("where", ["before", "in"])
def test_transient_for_does_not_count_a_pause(where):
    """Fail before the processor asks for an event.

    A processor that first connects to a database may do so.
    """
    shop, tries = Shop(transient_for=100, backoff=(1, 10)), []

    @shop.processor
    async def note(events):
        if where == "in":
            await anext(aiter(events))
        tries.append(asyncio.get_running_loop().time() - 1000)
        if tries[-1] > 20:
            pause_for(events._owner, 1000)
        raise ConnectionError("the database is away")

    outcome, took = run(shop)
    assert "transient_for=100 s" in outcome.quarantined[0]
    assert 1100 <= took < 1150
    assert sum(at > 1015 for at in tries) >= 9


def test_retry_for_does_not_count_a_pause():
    shop, tries = Shop(), []

    @shop.processor
    async def note(events):
        async for leg in events.records():
            now = asyncio.get_running_loop().time() - 1000
            if leg.n == 3:
                tries.append(now)
                if now > 20:
                    pause_for(events._owner, 1000)
                raise ValueError("three")
            shop.seen.append(leg.n)

    outcome, _ = run(shop)
    assert [letter.record.n for letter in outcome.dead] == [3]
    assert tries[-1] >= 1600


async def one_by_one(events):
    async for event in events:
        yield [event]


# ── timeouts ─────────────────────────────────────────────────────────────────────────────────────


def test_event_that_hangs_is_given_up_after_its_timeout_and_retries():
    shop = Shop(timeout=20)

    @shop.processor
    async def note(events):
        async for leg in events.records():
            if leg.n == 3:
                await asyncio.Event().wait()
            shop.seen.append(leg.n)

    outcome, took = run(shop)
    assert shop.seen == [n for n in range(10) if n != 3]
    [letter] = outcome.dead
    assert letter.error.startswith("EventTimeout: ")
    assert 600 <= took < 700


def test_batch_has_its_timeout_for_each_of_its_events():
    shop, took = Shop(timeout=20, retry_for=0, max_attempts=1), []

    @shop.processor
    async def note(events):
        now = asyncio.get_running_loop().time
        async for batch in events.take(5).records():
            began = now()
            try:
                if 3 in numbers(batch):
                    await asyncio.Event().wait()
            finally:
                took.append((len(batch), round(now() - began)))
            shop.seen += numbers(batch)

    run(shop)
    assert took[0] == (5, 100)
    assert (1, 20) in took
    assert shop.seen == [n for n in range(10) if n != 3]


@pytest.mark.parametrize("goes_on", [True, False])
def test_processor_that_catches_its_cancellation_has_not_finished(goes_on):
    shop, caught = Shop(timeout=20, retry_for=0, max_attempts=2), []

    @shop.processor
    async def note(events):
        async for leg in events.records():
            if leg.n == 3:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    caught.append(leg.n)
                    if not goes_on:
                        return
                    continue
            shop.seen.append(leg.n)

    outcome, _ = run(shop)
    assert caught == [3, 3]
    assert [letter.record.n for letter in outcome.dead] == [3]
    assert shop.seen == [n for n in range(10) if n != 3]


def test_processor_that_goes_on_after_its_cancellation_is_cancelled_again():
    shop, caught = Shop(timeout=20, retry_for=0, max_attempts=1), []

    @shop.processor
    async def note(events):
        async for leg in events.records():
            while leg.n == 3 and len(caught) < 3:
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    caught.append(asyncio.get_running_loop().time())
            shop.seen.append(leg.n)

    outcome, _ = run(shop)
    assert len(caught) == 3
    assert [letter.record.n for letter in outcome.dead] == [3]


def test_timeout_is_no_transient_error_though_a_cleanup_meets_one():
    shop = Shop(timeout=20, retry_for=0, max_attempts=1)

    @shop.processor
    async def note(events):
        async for leg in events.records():
            if leg.n == 3:
                try:
                    await asyncio.Event().wait()
                finally:
                    raise ConnectionError("the connection was in mid-call")
            shop.seen.append(leg.n)

    outcome, _ = run(shop)
    assert [letter.error.split(":")[0] for letter in outcome.dead] == ["EventTimeout"]


def test_slow_but_steady_processor_is_not_timed_out():
    shop = Shop(timeout=20)

    @shop.processor
    async def note(events):
        async for leg in events.records():
            for _ in range(3):
                await pass_time(6)
            shop.seen.append(leg.n)

    outcome, took = run(shop)
    assert shop.seen == list(range(10))
    assert outcome.dead == []
    assert took >= 180
