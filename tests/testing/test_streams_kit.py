"""Test the function that runs a processor on records, without servers."""

import asyncio
import threading

import pytest

from rink.errors import ConfigError, UsageError
from rink.streams import App, DeadLetter, Record, RecordError
from rink.testing.streams import process


class Order(Record):
    number: int
    customer: str


class Invoice(Record):
    customer: str
    total: int


@pytest.fixture
def app():
    app = App("shop")
    app.stream("orders", record=Order, partition_by="customer", partition_count=4)
    app.stream("invoices", record=Invoice, partition_by="customer", partition_count=2)
    return app


def orders(*numbers, customer="a"):
    return [Order(number=number, customer=customer) for number in numbers]


def test_every_record_is_processed_in_order(app):
    seen = []

    @app.processor(app.streams["orders"])
    async def bill(events):
        async for order in events.records():
            seen.append((events.partition, order.number))

    outcome = process(app, "bill", [*orders(1, 2, 3), *orders(9, customer="b")])
    assert sorted(number for _, number in seen) == [1, 2, 3, 9]
    assert [number for _, number in seen if number < 9] == [1, 2, 3]
    assert len(outcome.processed) == 4
    assert outcome.dead == []


def test_more_records_than_prefetch_are_fed_as_there_is_room(app):
    @app.processor(app.streams["orders"], prefetch=10, max_uncommitted=5)
    async def bill(events):
        async for _ in events.take(3):
            pass

    outcome = process(app, "bill", orders(*range(100)))
    assert [order.number for order in outcome.processed] == list(range(100))
    assert all(count <= 5 for count in outcome.commits)


def test_outcome_has_outputs_by_stream(app):
    @app.processor(app.streams["orders"], commit="manual")
    async def bill(events):
        async for batch in events.take(10).records():
            total = sum(order.number for order in batch)
            invoice = Invoice(customer=batch[0].customer, total=total)
            await events.commit([(app.streams["invoices"], invoice)])

    outcome = process(app, "bill", orders(1, 2, 3))
    assert outcome.outputs == {"invoices": [Invoice(customer="a", total=6)]}
    assert outcome.commits == [3]


def test_failing_record_is_retried_and_becomes_a_dead_letter(app):
    tries = []

    @app.processor(app.streams["orders"], max_attempts=3)
    async def bill(events):
        async for order in events.records():
            tries.append(order.number)
            if order.number == 2:
                raise ValueError("two")

    outcome = process(app, "bill", orders(1, 2, 3))
    assert tries == [1, 2, 2, 2, 3]
    [letter] = outcome.dead
    assert letter.record == Order(number=2, customer="a")
    assert letter.error == "ValueError: two"
    assert letter.attempts == 3
    assert "raise ValueError" in letter.trace
    assert [order.number for order in outcome.processed] == [1, 3]


def test_plain_function_processes_all_records(app):
    seen = []

    @app.processor(app.streams["orders"])
    def bill(events):
        seen.extend(order.number for order in events.records())

    process(app, "bill", orders(*range(200)))
    assert seen == list(range(200))


def test_bytes_that_are_no_record_become_a_dead_letter(app):
    @app.processor(app.streams["orders"])
    async def bill(events):
        async for _ in events:
            pass

    outcome = process(app, "bill", [b'{"number": "1"}'])
    assert outcome.dead[0].record == b'{"number": "1"}'
    assert outcome.processed == []


def test_partition_that_is_quarantined_says_why(app):
    @app.processor(app.streams["orders"], on_error="quarantine", max_attempts=1)
    async def bill(events):
        async for order in events.records():
            if order.number == 2:
                raise ValueError("two")

    outcome = process(app, "bill", orders(1, 2, 3))
    [reason] = outcome.quarantined.values()
    assert "ValueError: two" in reason
    assert [order.number for order in outcome.processed] == [1]


def test_record_of_another_class_is_refused(app):
    @app.processor(app.streams["orders"])
    async def bill(events):
        async for _ in events:
            pass

    with pytest.raises(RecordError):
        process(app, "bill", [Invoice(customer="a", total=1)])


def test_processor_that_does_not_return_times_out(app):
    never = threading.Event()

    @app.processor(app.streams["orders"])
    def bill(events):
        for event in events:
            if event.record.number == 3:
                never.wait(20)

    try:
        with pytest.raises(TimeoutError, match=r"not finish 3 records within 0\.3 s: committed: 0"):
            process(app, "bill", orders(1, 2, 3), seconds=0.3)
    finally:
        never.set()


def test_process_without_its_processor_or_in_a_loop_is_refused(app):
    with pytest.raises(ConfigError, match=r"no processor 'bil'; it has \[\]"):
        process(app, "bil", [])

    @app.processor(app.streams["orders"])
    async def bill(events):
        async for _ in events:
            pass

    async def within_a_loop():
        process(app, "bill", [])

    with pytest.raises(UsageError, match="a plain test function"):
        asyncio.run(within_a_loop())


@pytest.mark.parametrize("is_async", [True, False])
def test_batch_that_cannot_fill_is_not_waited_for(app, is_async):
    seen = []

    if is_async:

        @app.processor(app.streams["orders"], name="bill")
        async def bill(events):
            async for batch in events.take(100, within=3600).records():
                seen.append([order.number for order in batch])
    else:

        @app.processor(app.streams["orders"], name="bill")
        def bill_in_a_thread(events):
            for batch in events.take(100, within=3600).records():
                seen.append([order.number for order in batch])

    outcome = process(app, "bill", orders(*range(150)))
    assert [len(batch) for batch in seen] == [100, 50]
    assert [order.number for order in outcome.processed] == list(range(150))


def test_batches_are_full_with_a_smaller_prefetch(app):
    seen = []

    @app.processor(app.streams["orders"], prefetch=150, max_uncommitted=150)
    async def bill(events):
        async for batch in events.take(100, within=3600).records():
            seen.append(len(batch))

    process(app, "bill", orders(*range(450)))
    assert seen == [100, 100, 100, 100, 50]


def test_outputs_may_go_to_a_stream_of_another_app(app):
    office = App("office")
    office.stream("letters", record=Invoice, partition_by="customer", partition_count=3)

    @app.processor(app.streams["orders"])
    async def bill(events):
        async for order in events.records():
            letter = Invoice(customer=order.customer, total=order.number)
            await events.commit([(office.streams["letters"], letter)])

    outcome = process(app, "bill", orders(7))
    assert outcome.outputs == {"letters": [Invoice(customer="a", total=7)]}


def test_processor_of_dead_letters_gets_letters(app):
    dead, seen = app.streams["orders"].dead_letters("bill"), []

    @app.processor(dead, max_attempts=1)
    def alert(events):
        for letter in events.records():
            seen.append((letter.record, letter.error, letter.processor))
            if letter.error == "E: 2":
                raise ValueError("two")

    letters = [DeadLetter(record=order, error=f"E: {order.number}") for order in orders(0, 1, 2, 3)]
    unread = DeadLetter(record=b"{", error="none")
    outcome = process(app, "alert", [*letters[:2], unread, letters[2]])
    assert (b"{", "none", "bill") in seen
    assert (letters[0].record, "E: 0", "bill") in seen
    assert outcome.dead == []
    [reason] = outcome.quarantined.values()
    assert "ValueError: two" in reason
