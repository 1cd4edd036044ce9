"""Encode records as JSON across versions of a program."""

import math
import re
import typing
from enum import Enum, IntEnum, StrEnum

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rink.errors import ConfigError
from rink.streams import JsonCodec, Record, RecordError


class Kind(Enum):
    NEW = "new"
    OLD = "old"


class Item(Record):
    name: str


class Order(Record):
    number: int
    customer: str
    price: float = 0.0
    paid: bool = False
    items: list[Item] = attrs.field(factory=list)
    kind: Kind = Kind.NEW
    note: str | None = None


CODEC = JsonCodec(Order)
ORDERS = st.builds(
    Order,
    number=st.integers(),
    customer=st.text(st.characters(exclude_categories=["Cs"])),
    price=st.floats(allow_nan=False, allow_infinity=False),
    paid=st.booleans(),
    items=st.lists(st.builds(Item, name=st.text(st.characters(exclude_categories=["Cs"])))),
    kind=st.sampled_from(Kind),
    note=st.none() | st.text(st.characters(exclude_categories=["Cs"])),
)


@given(ORDERS)
def test_record_comes_back_as_it_was(order):
    assert CODEC.decode(CODEC.encode(order)) == order


def test_record_is_frozen_and_takes_keywords_only():
    order = Order(number=1, customer="a")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        order.number = 2
    with pytest.raises(TypeError):
        Order(1, "a")
    assert attrs.evolve(order, number=2).number == 2


def test_unknown_fields_are_ignored_and_missing_ones_take_their_defaults():
    order = CODEC.decode(b'{"number": 1, "customer": "a", "since": "a later version"}')
    assert order == Order(number=1, customer="a")


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"not json", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1]", "Order"),
        (b'{"customer": "a"}', "number"),
        (b'{"number": "1", "customer": "a"}', "number"),
        (b'{"number": 1.5, "customer": "a"}', "number"),
        (b'{"number": true, "customer": "a"}', "number"),
        (b'{"number": 1, "customer": 5}', "customer"),
        (b'{"number": 1, "customer": "a", "paid": 1}', "paid"),
        (b'{"number": 1, "customer": "a", "kind": "none"}', "kind"),
        (b'{"number": 1, "customer": "a", "items": [{"name": 3}]}', "items"),
    ],
)
def test_what_does_not_match_is_refused_by_the_name_of_its_field(data, told):
    with pytest.raises(RecordError, match=told):
        CODEC.decode(data)


def test_whole_number_is_a_float_and_not_the_other_way_round():
    assert CODEC.decode(b'{"number": 1, "customer": "a", "price": 2}').price == 2.0


@pytest.mark.parametrize("wrong", [{"number": "1"}, {"customer": None}, {"items": [1]}])
def test_record_with_wrong_types_is_not_sent(wrong):
    with pytest.raises(RecordError, match="does not match Order"):
        CODEC.encode(Order(**({"number": 1, "customer": "a"} | wrong)))


class Colour(StrEnum):
    RED = "red"


class Size(IntEnum):
    SMALL = 1


class Car(Record):
    colour: Colour
    size: Size = Size.SMALL


def test_enums_of_text_or_numbers_come_back_as_members_only():
    cars = JsonCodec(Car)
    car = Car(colour=Colour.RED)
    assert cars.encode(car) == b'{"colour":"red","size":1}'
    found = cars.decode(cars.encode(car))
    assert (type(found.colour), type(found.size)) == (Colour, Size)
    for wrong in (b'{"colour":"blue"}', b'{"colour":"red","size":99}', b'{"colour":1}'):
        with pytest.raises(RecordError, match=r"colour|size"):
            cars.decode(wrong)


class Counts(Record):
    by_number: dict[int, str]


def test_keys_that_json_would_make_text_are_refused_at_declaration():
    """Refuse keys that are no text: 1 would come back as "1"."""
    with pytest.raises(ConfigError, match=r"field 'by_number' of Counts is dict\[int, str\]"):
        JsonCodec(Counts)


class Old(Record):
    some: typing.Tuple = ()  # noqa: UP006
    two: typing.Tuple[int, str] = (0, "")  # noqa: UP006
    maybe: typing.Optional[typing.Tuple[int, int]] = None  # noqa: UP006, UP045
    any_number: tuple = ()


def test_tuples_may_be_written_as_before_python_3_9():
    codec = JsonCodec(Old)
    old = Old(some=(1, 2), two=(3, "x"), maybe=(4, 5), any_number=(6, 7, 8))
    assert codec.decode(codec.encode(old)) == old
    with pytest.raises(RecordError, match="3 values"):
        codec.encode(Old(two=(1, "x", 2)))


class Shape(Record):
    corner: tuple[int, int] = (0, 0)
    named: tuple[tuple[str, int], ...] = ()
    nothing: tuple[()] = ()


@pytest.mark.parametrize(
    ("shape", "told"),
    [
        (Shape(corner=(1, 2, 3)), "3 values, and tuple[int, int] has 2"),
        (Shape(corner=(1,)), "1 value, and tuple[int, int] has 2"),
        (Shape(named=(("a", 1), ("b", 2, 3))), "3 values, and tuple[str, int] has 2"),
        (Shape(nothing=(1,)), "1 value,"),
    ],
)
def test_no_value_of_a_tuple_is_dropped_without_a_word(shape, told):
    with pytest.raises(RecordError, match=re.escape(told)):
        JsonCodec(Shape).encode(shape)
    right = Shape(corner=(1, 2), named=(("a", 1), ("b", 2)))
    assert JsonCodec(Shape).decode(JsonCodec(Shape).encode(right)) == right


@pytest.mark.parametrize("price", [math.nan, math.inf, -math.inf])
def test_number_that_json_does_not_have_is_not_sent(price):
    with pytest.raises(RecordError, match=r"price=-?(nan|inf).*not JSON"):
        CODEC.encode(Order(number=1, customer="a", price=price))


def test_number_too_long_to_be_written_is_refused_like_any_other():
    with pytest.raises(RecordError, match=r"a Order .*Exceeds the limit"):
        CODEC.encode(Order(number=10**5000, customer="a"))
    with pytest.raises(RecordError, match="is not JSON: Exceeds the limit"):
        CODEC.decode(b'{"customer": "a", "number": ' + b"1" * 5000 + b"}")


def test_record_of_another_class_is_not_sent():
    with pytest.raises(RecordError, match="Item was given where the stream has Order"):
        CODEC.encode(Item(name="a"))


def test_class_that_is_no_record_is_refused():
    with pytest.raises(ConfigError, match=r"subclass rink\.streams\.Record"):
        JsonCodec(int)
