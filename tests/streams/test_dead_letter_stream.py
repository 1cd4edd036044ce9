"""Declare streams of dead letters, and refuse wrong declarations."""

import asyncio

import pytest

from rink.errors import ConfigError, UsageError
from rink.streams import App, DeadLetter, Record
from rink.streams.consumer.buffer import StreamEntry
from rink.streams.dead_letter_stream import DeadLetterStream


class Order(Record):
    number: int
    customer: str = "a"


@pytest.fixture
def orders():
    return App("shop").stream("orders", record=Order, partition_by="customer", partition_count=4)


def test_letters_lie_beside_their_events(orders):
    dead = orders.dead_letters("a b")
    keys = dead.names.partition(3)
    assert keys.stream == "rink:{shop/orders/3}:dead:a%20b"
    assert keys.offsets == "rink:{shop/orders/3}:dead:a%20b:offsets"
    assert (dead.names.about, dead.partition_count) == (orders.names.about, 4)


def test_dead_letters_of_one_processor_are_one_stream(orders):
    dead = orders.dead_letters("bill")
    assert orders.dead_letters("bill") is dead
    assert orders.app.streams == {"orders": orders, "orders:dead:bill": dead}


def test_dead_letters_have_none_themselves(orders):
    with pytest.raises(ConfigError, match="stays where it is"):
        orders.dead_letters("bill").dead_letters("alert")


def test_reader_of_dead_letters_quarantines_where_it_fails(orders):
    dead = orders.dead_letters("bill")

    async def alert(events): ...

    with pytest.raises(ConfigError, match=r"on_error='quarantine' \(the default .*\) or 'halt'"):
        orders.app.processor(dead, on_error="dead-letter")(alert)
    orders.app.processor(dead)(alert)
    orders.app.processor(dead, name="other", on_error="halt")(alert)
    orders.app.processor(orders, name="bill")(alert)
    policies = {name: one.policy.on_error for name, one in orders.app.processors.items()}
    assert policies == {"alert": "quarantine", "other": "halt", "bill": "dead-letter"}


@pytest.mark.parametrize("name", ["", None, 3, "\ud800"])
def test_dead_letters_of_no_name_are_refused(orders, name):
    with pytest.raises(ConfigError, match="processor"):
        orders.dead_letters(name)


def test_name_of_another_stream_is_refused(orders):
    orders.app.stream("orders:dead:bill", record=Order, partition_by="customer")
    with pytest.raises(ConfigError, match="a stream 'orders:dead:bill' of another kind"):
        orders.dead_letters("bill")
    other = orders.app.stream("orders:dead", record=Order, partition_by="customer")
    orders.dead_letters("dead:x")
    with pytest.raises(ConfigError, match="of another kind"):
        other.dead_letters("x")


def test_nobody_sends_to_a_stream_of_dead_letters(orders):
    dead = orders.dead_letters("bill")
    for record in (DeadLetter(record=Order(number=1)), Order(number=1), b"x"):
        with pytest.raises(UsageError, match="written by its commits alone"):
            asyncio.run(dead.send(record))
        with pytest.raises(UsageError, match="written by its commits alone"):
            dead.written(record)


def test_letter_of_fields_that_are_no_text_is_read(orders):
    dead = orders.dead_letters("bill")
    assert isinstance(dead, DeadLetterStream)
    entry = StreamEntry("1-0", b"\xff", fields={b"error": b"\xfe", b"id": b"7-0"})
    assert dead.decode(entry) == DeadLetter(
        record=b"\xff", event="7-0", error="\\xfe", processor="bill"
    )
    assert dead.decode(StreamEntry("1-0", b'{"number":1}')).record == Order(number=1)
