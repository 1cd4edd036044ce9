"""Test that Arrow reads JSON as the codec does, or is not used."""

import dataclasses
import json
import sys
import types
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from types import SimpleNamespace
from typing import Annotated, Literal
from uuid import UUID

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import types as T  # noqa: N812

from rink.errors import ConfigError
from rink.spark.options import Options, StreamPlace
from rink.spark.rows import Rows
from rink.spark.schema import METADATA, RAW, columns_of, fits, struct_of, wanted_of
from rink.spark.sink.records import check_columns, maker
from rink.streams import App, JsonCodec, Record
from rink.streams.errors import RecordError


class Flat(Record):
    number: int
    text: str
    real: float = 1.5
    flag: bool = False
    maybe: int | None = None
    named: str | None = "somebody"


class Colour(Enum):
    RED = "red"


class Inner(Record):
    n: int


class Rich(Record):
    at: datetime
    day: date | None
    colour: Colour
    kind: Literal["a", "b"]
    many: list[int]
    pairs: dict[str, float]
    inner: Inner
    data: bytes = b""


def entries(*data):
    return [(f"{1000 + n}-{n}".encode(), [b"d", one]) for n, one in enumerate(data)]


def rows_of(record, *, metadata=False, wanted=None, codec=None):
    schema = wanted or columns_of(record, metadata=metadata)
    made = codec or (JsonCodec(record) if record else None)
    return Rows(schema, 3, record, made, "spark/me", "stream 'a'")


values = st.fixed_dictionaries(
    {},
    optional={
        "number": st.one_of(st.integers(-(2**70), 2**70), st.booleans(), st.none(), st.floats()),
        "text": st.one_of(st.text(max_size=5), st.integers(), st.none(), st.just("2024-01-01")),
        "real": st.one_of(st.floats(), st.integers(-(10**20), 10**20), st.text(max_size=2)),
        "flag": st.one_of(st.booleans(), st.integers(0, 1)),
        "maybe": st.one_of(st.none(), st.integers(-5, 5), st.floats(0, 2)),
        "named": st.one_of(st.none(), st.text(max_size=3), st.just([])),
        "more": st.one_of(st.none(), st.lists(st.integers())),
    },
)
good = st.fixed_dictionaries(
    {"number": st.integers(-(2**63), 2**63 - 1), "text": st.text(max_size=5)},
    optional={
        "real": st.floats(allow_nan=False, allow_infinity=False),
        "flag": st.booleans(),
        "maybe": st.one_of(st.none(), st.integers(-5, 5)),
        "named": st.one_of(st.none(), st.text(max_size=3)),
        "more": st.integers(),
    },
)


@given(st.lists(st.one_of(good, values), max_size=5))
def test_page_is_read_as_the_codec_reads_it_or_refused_as_it_refuses_it(plain):
    data = [json.dumps(one).encode() for one in plain]
    codec = JsonCodec(Flat)
    try:
        wanted = [codec.decode(one) for one in data]
        fits = all(-(2**63) <= n < 2**63 for one in wanted for n in (one.number, one.maybe or 0))
    except RecordError:
        fits = False
    rows = rows_of(Flat)
    if not fits:
        with pytest.raises(RecordError):
            rows.batch(entries(*data))
        return
    found = rows.batch(entries(*data)).to_pylist()
    names = struct_of(Flat).names
    # Compare texts, since NaN is not equal to itself.
    assert repr(found) == repr([{name: getattr(one, name) for name in names} for one in wanted])


@given(st.lists(good, min_size=1, max_size=20))
@example([{"number": 1, "text": "", "real": 0.5, "flag": True}])  # `named` is missing
def test_plain_records_are_read_by_arrow(plain):
    has_null = any(one.get("named", "") is None or "named" not in one for one in plain)
    missing = any(not {"real", "flag"} <= one.keys() for one in plain)
    rows = rows_of(Flat)
    found = rows._read_by_arrow([json.dumps(one).encode() for one in plain])
    assert (found is None) == (has_null or missing)


class Looked(Record):
    amount: int = attrs.field(validator=attrs.validators.ge(0))
    named: str | None = "somebody"


class Changed(Record):
    amount: int = attrs.field(converter=lambda n: n * 2)
    named: str | None = "somebody"


class After(Record):
    amount: int

    def __attrs_post_init__(self):
        if self.amount < 0:
            raise ValueError("below zero")


@pytest.mark.parametrize("record", [Looked, After])
@pytest.mark.parametrize("others", [', "named": "x"', ', "named": null'])
def test_what_a_class_refuses_is_refused_whoever_else_is_in_the_page(record, others):
    page = [b'{"amount": 1%s}' % others.encode(), b'{"amount": -5, "named": "x"}']
    with pytest.raises(RecordError):
        rows_of(record).batch(entries(*page))


@pytest.mark.parametrize("others", ["", ', "named": null'])
def test_what_a_class_changes_is_changed_whoever_else_is_in_the_page(others):
    page = [b'{"amount": 1, "named": "x"%s}' % others.encode(), b'{"amount": 2, "named": "x"}']
    found = rows_of(Changed).batch(entries(*page)).to_pylist()
    assert [row["amount"] for row in found] == [2, 4]


def test_rich_records_have_columns_of_their_types():
    record = Rich(
        at=datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        day=None,
        colour=Colour.RED,
        kind="b",
        many=[1, 2],
        pairs={"x": 0.5},
        inner=Inner(n=7),
        data=b"\x00\xff",
    )
    codec = JsonCodec(Rich)
    found = rows_of(Rich).batch(entries(codec.encode(record))).to_pylist()
    assert found == [
        {
            "at": record.at,
            "day": None,
            "colour": "red",
            "kind": "b",
            "many": [1, 2],
            "pairs": [("x", 0.5)],
            "inner": {"n": 7},
            "data": b"\x00\xff",
        }
    ]


@dataclasses.dataclass(frozen=True)
class Bill:
    id: UUID
    amount: Decimal
    opens: time
    lasts: timedelta
    parts: list[Decimal] = dataclasses.field(default_factory=list)
    by_id: dict[str, UUID] = dataclasses.field(default_factory=dict)
    note: Annotated[str | None, "free text"] = None


def test_rows_dataclass_with_built_in_types_columns_of_them():
    bill = Bill(UUID(int=7), Decimal("-1.50"), time(8, 30), timedelta(days=1, microseconds=1),
                [Decimal("0.000000000000000001")], {"a": UUID(int=8)})  # fmt: skip
    types = {field.name: field.dataType.simpleString() for field in struct_of(Bill)}
    assert types == {
        "id": "string", "amount": "decimal(38,18)", "opens": "string",
        "lasts": "interval day to second",
        "parts": "array<decimal(38,18)>", "by_id": "map<string,string>", "note": "string",
    }  # fmt: skip
    (row,) = rows_of(Bill).batch(entries(JsonCodec(Bill).encode(bill))).to_pylist()
    assert row == {
        "id": str(UUID(int=7)), "amount": bill.amount, "opens": "08:30:00", "lasts": bill.lasts,
        "parts": bill.parts, "by_id": [("a", str(UUID(int=8)))], "note": None,
    }  # fmt: skip


def test_rows_decimal_too_long_for_its_column_named():
    bill = Bill(UUID(int=7), Decimal("1E-19"), time(), timedelta())
    with pytest.raises(RecordError, match="does not fit its column"):
        rows_of(Bill).batch(entries(JsonCodec(Bill).encode(bill)))


def test_rows_codec_with_hooks_not_read_by_arrow():
    """A hook may read a text as a number."""
    codec = JsonCodec(Flat, hooks={int: (str, int)})
    data = codec.encode(Flat(number=5, text="x"))
    assert b'"number":"5"' in data
    (row,) = rows_of(Flat, codec=codec).batch(entries(data)).to_pylist()
    assert row["number"] == 5


def test_metadata_says_where_an_event_lies():
    found = rows_of(None, metadata=True).batch([(b"1700000000123-45", [b"d", b"x"])]).to_pylist()
    assert found == [
        {
            "value": b"x",
            "_partition": 3,
            "_id": "1700000000123-45",
            "_timestamp": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
        }
    ]


def test_events_that_were_requeued_for_others_are_passed_over():
    mixed = [
        (b"1-0", [b"d", b"all"]),
        (b"2-0", [b"d", b"theirs", b"only", b"bill"]),
        (b"3-0", [b"d", b"ours", b"only", b"spark/me"]),
    ]
    assert [row["value"] for row in rows_of(None).batch(mixed).to_pylist()] == [b"all", b"ours"]


def test_record_that_does_not_match_is_named_with_its_place():
    bad = entries(b'{"number":1,"text":"x"}', b'{"number":"7","text":"x"}')
    with pytest.raises(RecordError, match=r"event 1001-1 of partition 3 of stream 'a'.*number"):
        rows_of(Flat).batch(bad)


def test_only_the_columns_that_are_asked_for_are_made():
    every = columns_of(Flat, metadata=True)
    asked = T.StructType([every["_id"], every["text"]])
    wanted = wanted_of(asked, every, "it")
    found = rows_of(Flat, wanted=wanted).batch(entries(b'{"number":1,"text":"x"}')).to_pylist()
    assert found == [{"_id": "1000-0", "text": "x"}]


def test_metadata_alone_can_be_asked_for():
    wanted = wanted_of(T.StructType([METADATA["_id"]]), columns_of(Flat, metadata=True), "it")
    found = rows_of(Flat, wanted=wanted).batch(entries(b"no JSON at all")).to_pylist()
    assert found == [{"_id": "1000-0"}]


@pytest.mark.parametrize(
    "field", [T.StructField("nothing", T.LongType()), T.StructField("number", T.StringType())]
)
def test_column_that_there_is_not_is_refused(field):
    with pytest.raises(ConfigError, match=f"no column '{field.name}'.*number bigint, text string"):
        wanted_of(T.StructType([field]), columns_of(Flat, metadata=False), "stream 'a'")


def test_what_may_be_null_is_as_the_query_asks_and_no_matter_for_the_type():
    array, of_text = T.ArrayType(T.LongType()), T.MapType(T.StringType(), T.DoubleType())
    inner = T.StructType([T.StructField("n", T.LongType())])
    asked = T.StructType(
        [
            T.StructField("many", array),
            T.StructField("pairs", of_text),
            T.StructField("inner", inner),
        ]
    )
    every = columns_of(Rich, metadata=False)
    assert every["many"] != asked["many"]
    wanted = wanted_of(asked, every, "it")
    assert wanted == asked
    data = {"at": "2026-01-02T03:04:05+00:00", "day": None, "colour": "red", "kind": "a",
            "many": [1, 2], "pairs": {"x": 0.5}, "inner": {"n": 7}}  # fmt: skip
    (row,) = rows_of(Rich, wanted=wanted).batch(entries(json.dumps(data).encode())).to_pylist()
    with pytest.raises(ConfigError, match=r"'day' of it may be null: .*NOT NULL"):
        wanted_of(T.StructType([T.StructField("day", T.DateType(), False)]), every, "it")
    assert row == {"many": [1, 2], "pairs": [("x", 0.5)], "inner": {"n": 7}}


@pytest.mark.parametrize(
    ("given", "wanted", "same", "wider"),
    [
        (T.LongType(), T.LongType(), True, True),
        (T.IntegerType(), T.LongType(), False, True),
        (T.LongType(), T.IntegerType(), False, False),
        (T.ArrayType(T.LongType(), True), T.ArrayType(T.LongType(), False), True, True),
        (T.ArrayType(T.ShortType()), T.ArrayType(T.LongType()), False, True),
        (T.ArrayType(T.StringType()), T.ArrayType(T.LongType()), False, False),
        (
            T.MapType(T.StringType(), T.FloatType()),
            T.MapType(T.StringType(), T.DoubleType()),
            False,
            True,
        ),
        (
            T.MapType(T.LongType(), T.LongType()),
            T.MapType(T.StringType(), T.LongType()),
            False,
            False,
        ),
        (T.StructType([]), T.StructType([T.StructField("a", T.LongType())]), True, True),
        (T.StructType([T.StructField("b", T.LongType())]), T.StructType([]), False, False),
        (
            T.ArrayType(T.StructType([T.StructField("a", T.ByteType())])),
            T.ArrayType(T.StructType([T.StructField("a", T.LongType(), False)])),
            False,
            True,
        ),
    ],
)  # fmt: skip
def test_which_types_fit(given, wanted, same, wider):
    assert fits(given, wanted) is same
    assert fits(given, wanted, widens=True) is wider


def test_field_named_as_metadata_needs_metadata_off():
    class Odd(Record):
        _id: str

    with pytest.raises(ConfigError, match="metadata"):
        columns_of(Odd, metadata=True)
    assert columns_of(Odd, metadata=False).names == ["_id"]


def test_field_without_a_column_type_is_named():
    class Odd(Record):
        shape: complex

    with pytest.raises(ConfigError, match="field 'shape' of Odd"):
        columns_of(Odd, metadata=False)


def test_bytes_are_all_there_is_without_a_class():
    assert columns_of(None, metadata=False) == RAW


# ── decimals, times without a zone, ids ──────────────────────────────────────────────────────────


NOON = datetime(2026, 1, 1, 12)  # noqa: DTZ001 - it has none


class Priced(Record):
    price: Decimal
    tax: Decimal | None = None
    at: datetime | None = None
    order: UUID | None = None


class AsText:
    """A codec whose output every test knows."""

    def encode(self, record):
        raise NotImplementedError

    def decode(self, data):
        plain = json.loads(data)
        return Priced(
            price=Decimal(plain["price"]),
            at=datetime.fromisoformat(plain["at"]) if "at" in plain else None,
            order=UUID(plain["order"]) if "order" in plain else None,
        )


def priced(*plain, wanted=None):
    return rows_of(Priced, codec=AsText(), wanted=wanted).batch(
        entries(*(json.dumps(one).encode() for one in plain))
    )


def test_decimals_have_sparks_own_type_and_any_that_is_asked_for():
    assert columns_of(Priced, metadata=False)["price"].dataType == T.DecimalType(38, 18)
    assert priced({"price": "12.30"}).to_pylist()[0]["price"] == Decimal("12.30")
    asked = T.StructType([T.StructField("price", T.DecimalType(12, 2), False)])
    wanted = wanted_of(asked, columns_of(Priced, metadata=False), "it")
    found = priced({"price": "12.3"}, {"price": "-9999999999.99"}, wanted=wanted)
    prices = [row["price"] for row in found.to_pylist()]
    assert prices == [Decimal("12.30"), Decimal("-9999999999.99")]


@pytest.mark.parametrize("price", ["12.345", "12345678901", "NaN", "Infinity", "1E-3"])
def test_decimal_that_does_not_fit_its_column_is_refused(price):
    wanted = T.StructType([T.StructField("price", T.DecimalType(12, 2), False)])
    with pytest.raises(RecordError, match=r"value of 'price' does not fit .*decimal128\(12, 2\)"):
        priced({"price": "1"}, {"price": price}, wanted=wanted)


def test_time_asked_for_without_zone_is_utc():
    asked = T.StructType([T.StructField("at", T.TimestampNTZType())])
    wanted = wanted_of(asked, columns_of(Priced, metadata=False), "it")
    times = ["2026-01-01T13:00:00+01:00", "2026-01-01T12:00:00"]
    found = priced(*({"price": "1", "at": one} for one in times), wanted=wanted)
    assert [row["at"] for row in found.to_pylist()] == [NOON, NOON]


def test_uuid_is_text():
    text = "00000000-0000-0000-0000-00000000002a"
    assert priced({"price": "1", "order": text}).to_pylist()[0]["order"] == text


# ── names ────────────────────────────────────────────────────────────────────────────────────────


class Cased(Record):
    id: int
    Id: int = 0
    name: str = ""
    inner: Inner | None = None
    many: list[Inner] = attrs.field(factory=list)
    by_key: dict[str, Inner] = attrs.field(factory=dict)


def test_columns_are_found_whatever_the_case_of_their_names():
    every = columns_of(Cased, metadata=True)
    one = T.StructType([T.StructField("N", T.LongType())])
    asked = T.StructType(
        [
            T.StructField("NAME", T.StringType()),
            T.StructField("Inner", one),
            T.StructField("MANY", T.ArrayType(one)),
            T.StructField("BY_key", T.MapType(T.StringType(), one)),
            T.StructField("_ID", T.StringType()),
        ]
    )
    wanted = wanted_of(asked, every, "it")
    data = {"id": 1, "name": "x", "inner": {"n": 7}, "many": [{"n": 8}], "by_key": {"k": {"n": 9}}}
    (row,) = rows_of(Cased, wanted=wanted).batch(entries(json.dumps(data).encode())).to_pylist()
    assert row == {
        "NAME": "x", "Inner": {"N": 7}, "MANY": [{"N": 8}], "BY_key": [("k", {"N": 9})],
        "_ID": "1000-0",
    }  # fmt: skip


def test_columns_that_differ_by_case_alone_are_each_their_own():
    asked = T.StructType([T.StructField("Id", T.LongType()), T.StructField("id", T.LongType())])
    wanted = wanted_of(asked, columns_of(Cased, metadata=False), "it")
    (row,) = rows_of(Cased, wanted=wanted).batch(entries(b'{"id":1,"Id":2}')).to_pylist()
    assert row == {"Id": 2, "id": 1}
    for name in ("ID", "iD"):  # which one is unknown
        asked = T.StructType([T.StructField(name, T.LongType())])
        with pytest.raises(ConfigError, match=f"no column '{name}'"):
            wanted_of(asked, columns_of(Cased, metadata=False), "it")
    twice = T.StructType(
        [T.StructField("name", T.StringType()), T.StructField("NAME", T.StringType())]
    )
    with pytest.raises(ConfigError, match="no column 'NAME'"):
        wanted_of(twice, columns_of(Cased, metadata=False), "it")


def test_field_named_as_metadata_is_the_records_own_where_metadata_is_off():
    class Odd(Record):
        _id: str

    class Plain:
        def decode(self, data):
            return Odd(id=data.decode())

    (row,) = rows_of(Odd, codec=Plain()).batch(entries(b"mine")).to_pylist()
    assert row == {"_id": "mine"}


# ── rows to records ──────────────────────────────────────────────────────────────────────────────


class Size(IntEnum):
    SMALL = 1


class Word(StrEnum):
    BUY = "buy"


class Asks(Record):
    price: Decimal
    at: datetime | None = None
    inner: Inner | None = None
    many: list[Inner] = attrs.field(factory=list)
    by_key: dict[str, Inner] = attrs.field(factory=dict)
    size: Size | None = None
    words: list[Word] = attrs.field(factory=list)


@pytest.fixture
def to_asks(monkeypatch):
    """Return a function that makes records of rows with these columns."""
    module = types.ModuleType("rows_shop")
    module.app = App("shop", redis="redis://127.0.0.1:1")
    as_it_is = SimpleNamespace(encode=lambda record: record, decode=lambda data: data)
    module.app.stream("asks", record=Asks, partition_by="price", partition_count=1, codec=as_it_is)
    monkeypatch.setitem(sys.modules, "rows_shop", module)
    place = StreamPlace.of(Options({"app": "rows_shop:app", "stream": "asks"}, of_sink=True))

    def make(given, row):
        check_columns(place, given)
        return maker(place, 1, given)(row)[1]

    return make


def columns(**kinds):
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items()])


def test_rows_become_records_whatever_the_case_of_their_columns(to_asks):
    one = columns(N=T.LongType())
    given = columns(
        PRICE=T.DecimalType(12, 2), At=T.TimestampNTZType(), INNER=one, Many=T.ArrayType(one),
        By_Key=T.MapType(T.StringType(), one),
    )  # fmt: skip
    row = {"PRICE": Decimal("1.50"), "At": NOON, "INNER": {"N": 1},
           "Many": [{"N": 2}], "By_Key": {"k": {"N": 3}}}  # fmt: skip
    assert to_asks(given, row) == Asks(
        price=Decimal("1.50"), at=NOON, inner=Inner(n=1), many=[Inner(n=2)],
        by_key={"k": Inner(n=3)},
    )  # fmt: skip
    assert to_asks(columns(price=T.LongType()), {"price": 7}) == Asks(price=Decimal(7))
    whole = columns(price=T.DecimalType(5, 0), INNER=one)
    assert to_asks(whole, {"price": Decimal(7), "INNER": None}) == Asks(price=Decimal(7))


@pytest.mark.parametrize("kind", [T.DoubleType(), T.StringType(), T.FloatType()])
def test_decimal_field_takes_no_binary_fraction_and_no_text(to_asks, kind):
    with pytest.raises(ConfigError, match=r"price .* is no column of it"):
        to_asks(columns(price=kind), {"price": 1})


def test_enums_of_numbers_and_texts_are_members_again(to_asks):
    given = columns(price=T.LongType(), size=T.LongType(), words=T.ArrayType(T.StringType()))
    made = to_asks(given, {"price": 7, "size": 1, "words": ["buy"]})
    assert type(made.size) is Size
    assert [type(word) for word in made.words] == [Word]


@pytest.mark.parametrize(
    ("name", "kind", "value", "told"),
    [
        ("size", T.LongType(), 9, r"\$\.size"),
        ("words", T.ArrayType(T.StringType()), ["buy", "sell"], r"\$\.words\[1\]"),
        ("inner", T.StructType([]), {}, r"required field missing @ \$\.inner\.n"),
    ],
)
def test_row_that_is_no_record_is_told_with_its_field(to_asks, name, kind, value, told):
    with pytest.raises(RecordError, match=told):
        to_asks(columns(price=T.LongType(), **{name: kind}), {"price": 7, name: value})
