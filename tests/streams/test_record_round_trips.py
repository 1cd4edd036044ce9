"""Send and read back records of any types and values.

The same record comes back, or it is refused with a clear error.
"""

import contextlib
import dataclasses
import json
import math
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, Union
from uuid import UUID

import attrs
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rink.errors import ConfigError
from rink.streams import JsonCodec, Record, RecordError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
OFFSETS = st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).filter(
    # Python writes an offset below a second, and reads it as UTC: such a value is refused.
    lambda offset: not timedelta(0) < abs(offset) < timedelta(seconds=1)
)
ZONES = st.none() | st.builds(timezone, OFFSETS)


class Kind(Enum):
    NEW = "new"
    OLD = 2


class Item(Record):
    name: str


@dataclasses.dataclass(frozen=True)
class Point:
    x: int
    at: datetime | None = None


SCALARS = [
    (str, TEXT),
    (int, st.integers()),
    (float, st.floats(allow_nan=False, allow_infinity=False)),
    (bool, st.booleans()),
    (bytes, st.binary(max_size=5)),
    (datetime, st.datetimes(timezones=ZONES)),
    (date, st.dates()),
    (time, st.times(timezones=ZONES)),
    (timedelta, st.timedeltas()),
    (Decimal, st.decimals(allow_nan=False, allow_infinity=False)),
    (UUID, st.uuids()),
    (Kind, st.sampled_from(Kind)),
    (Literal["a", 1, True], st.sampled_from(["a", 1, True])),
    (Item, st.builds(Item, name=TEXT)),
    (Point, st.builds(Point, st.integers(), st.none() | st.datetimes())),
    (None, st.none()),
]


def grown(pairs):
    """Return strategies of container types, with their values."""
    return st.one_of(
        pairs.map(lambda pair: (list[pair[0]], st.lists(pair[1], max_size=3))),
        pairs.map(lambda pair: (tuple[pair[0], ...], st.lists(pair[1], max_size=3).map(tuple))),
        pairs.map(lambda pair: (dict[str, pair[0]], st.dictionaries(TEXT, pair[1], max_size=3))),
        st.tuples(pairs, pairs).map(
            lambda both: (tuple[both[0][0], both[1][0]], st.tuples(both[0][1], both[1][1]))
        ),
        st.tuples(pairs, pairs).map(
            lambda both: (Union[both[0][0], both[1][0]], both[0][1] | both[1][1])  # noqa: UP007
        ),
    )


TYPES = st.recursive(st.sampled_from(SCALARS), grown, max_leaves=5)


def made(hint):
    """Return a record class with a field of a type, and its codec.

    It is None if the type is refused.
    """
    record = attrs.make_class("Holder", {"value": attrs.field(type=hint)}, frozen=True)
    try:
        return record, JsonCodec(record)
    except ConfigError:
        return record, None


def test_codec_offset_below_a_second_is_refused():
    record, codec = made(datetime)
    zone = timezone(timedelta(microseconds=1))
    with pytest.raises(RecordError, match="does not match Holder: datetime"):
        codec.encode(record(datetime(2000, 1, 1, tzinfo=zone)))


@given(TYPES, st.data())
@settings(max_examples=200)
def test_codec_value_of_the_type_comes_back_the_same(pair, data):
    record, codec = made(pair[0])
    assume(codec is not None)
    value = data.draw(pair[1])
    back = codec.decode(codec.encode(record(value))).value
    assert back == value
    assert same_classes(value, back)


@given(TYPES, TYPES, st.data())
@settings(max_examples=200)
def test_codec_value_of_any_type_is_the_same_or_not_sent(pair, other, data):
    record, codec = made(pair[0])
    assume(codec is not None)
    value = data.draw(other[1])
    try:
        sent = codec.encode(record(value))
    except RecordError as error:
        raised = error
    else:
        raised = None
    if raised is not None:
        assert "@ $.value" in str(raised)
        return
    assert codec.decode(sent).value == value
    assert same_classes(value, codec.decode(sent).value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(JSON)
def test_codec_any_json_comes_back_as_any_or_is_not_sent(value):
    record, codec = made(Any)
    try:
        sent = codec.encode(record(value))
    except RecordError:
        assert "nan" in repr(value) or "inf" in repr(value)
        return
    assert codec.decode(sent).value == value


@given(
    TYPES,
    st.binary(max_size=20) | JSON.map(lambda value: b'{"value":%s}' % json.dumps(value).encode()),
)
def test_codec_stored_bytes_of_any_kind_raise_record_errors_alone(pair, data):
    _, codec = made(pair[0])
    assume(codec is not None)
    with contextlib.suppress(RecordError):
        codec.decode(data)


def same_classes(one, other):
    """Return whether two values have the same classes all through.

    A whole number may be a float.
    """
    if isinstance(one, int) and isinstance(other, float):
        return math.isfinite(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return all(map(same_classes, one, other))
    if isinstance(one, dict):
        return all(same_classes(each, other[name]) for name, each in one.items())
    return True
