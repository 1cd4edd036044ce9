"""Send each type of field and read it back, or refuse it."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import pathlib
import re
import typing
import uuid
from collections import abc
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypeVar, Union
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import pytest

from rink.errors import ConfigError
from rink.streams import App, JsonCodec, Record, RecordError

BERLIN = ZoneInfo("Europe/Berlin")
SOME_ID = uuid.UUID("12345678-1234-5678-1234-567812345678")
T = TypeVar("T")
Amount = NewType("Amount", Decimal)


class Colour(enum.StrEnum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Kind(enum.Enum):
    NEW = "new"
    OLD = 2


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Pairs(enum.Enum):
    ONE = (1, 2)


class Point(NamedTuple):
    x: int
    y: float = 0.0


class Where(typing.TypedDict):
    city: str
    at: typing.NotRequired[datetime]


class Item(Record):
    name: str


class Priced(Record):
    price: Decimal


class Paid(Record):
    kind: Literal["paid"] = "paid"
    amount: int = 0


class Returned(Record):
    kind: Literal["returned"] = "returned"
    amount: int = 0


class Same1(Record):
    amount: int = 0


class Same2(Record):
    amount: int = 0


class Tree(Record):
    n: int
    below: list["Tree"] = attrs.field(factory=list)


class Box(Record, Generic[T]):
    inside: T


@dataclasses.dataclass(frozen=True)
class Plain:
    n: int
    at: datetime | None = None


@attrs.define
class Attrs:
    n: int
    tags: set[str] = attrs.field(factory=set)


@dataclasses.dataclass
class NeedsMore:
    n: int
    more: dataclasses.InitVar[int]

    def __post_init__(self, more):
        pass


def named(value):
    """Return the name of a parameter.

    It must not depend on the order of a set, which differs in each process.
    """
    return "a set" if isinstance(value, set) else repr(value)


def record_of(hint):
    """Return a record class with one field of a type."""
    return attrs.make_class(
        "Holder", {"value": attrs.field(type=hint)}, bases=(), frozen=True, kw_only=True
    )


NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)

COME_BACK = [
    (str, "å\u2028\U0001f600\x00"),
    (int, 2**80),
    (float, -0.1),
    (float, 1),
    (bool, True),
    (None, None),
    (bytes, bytes(range(256))),
    (bytes, b""),
    (datetime, NOW),
    (datetime, NOW.replace(tzinfo=None)),
    (datetime, datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN)),  # twice a year == fails
    (datetime, datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN)),
    (datetime, datetime(1800, 1, 1, tzinfo=timezone(timedelta(seconds=3208, microseconds=5)))),
    (date, date.max),
    (time, time(23, 59, 59, 999999)),
    (time, time(1, tzinfo=timezone(timedelta(hours=-3)))),
    (timedelta, timedelta(days=-1, microseconds=1)),
    (timedelta, timedelta.max),
    (timedelta, timedelta.min),
    (timedelta, timedelta()),
    (Decimal, Decimal("1.10")),
    (Decimal, Decimal("-0E-9999")),
    (Decimal | None, Decimal("0.1")),
    (Optional[Decimal], None),  # noqa: UP045
    (Amount, Decimal(5)),
    (UUID, SOME_ID),
    (UUID | None, SOME_ID),
    (Colour, Colour.RED),
    (Size, Size.SMALL),
    (Kind, Kind.OLD),
    (Rights, Rights.READ | Rights.WRITE),
    (Literal["a", 1, True, None], True),  # noqa: PYI061
    (Literal["a", 1, True] | None, 1),
    (Literal["new", Kind.OLD], Kind.OLD),
    (Literal["a"] | str, "b"),  # noqa: PYI051
    (str | int | float | bool | None, 1),
    (str | int | float | bool | None, 1.0),
    (str | int | float | bool | None, True),
    (int | float, 2.0),
    (Decimal | int, Decimal(1)),
    (Decimal | int, 1),
    (Union[UUID, float, None], 5),  # noqa: UP007
    (Colour | int, Colour.RED),
    (Kind | Colour, Colour.RED),
    (Kind | None, Kind.NEW),
    (list[Kind | Item], [Kind.OLD, Item(name="a")]),
    (list[int], [1, 2]),
    (list, [1, "a", None, {"a": [0.5]}]),
    (list[datetime | None], [NOW, None]),
    (tuple[int, ...], (1, 2)),
    (tuple[int, UUID], (1, SOME_ID)),
    (tuple, (1, "x")),
    (set[str], {"a", "b"}),
    (set[datetime], {NOW}),
    (frozenset[UUID], frozenset({SOME_ID})),
    (dict[str, Decimal], {"": Decimal(1)}),
    (dict[UUID, int], {SOME_ID: 1}),
    (dict[Colour, bytes], {Colour.RED: b"x"}),
    (dict[date, list[time]], {date.min: [time.min]}),
    (abc.Mapping[str, int], {"a": 1}),
    (dict, {"a": [1, {"b": None}]}),
    (Point, Point(1, 0.5)),
    (Where, {"city": "Ulm", "at": NOW}),
    (Where, {"city": "Ulm"}),
    (Item, Item(name="a")),
    (list[Item] | None, [Item(name="a")]),
    (Item | Priced, Priced(price=Decimal("1.5"))),
    (Item | Priced | None, Item(name="x")),
    (Paid | Returned, Returned(amount=3)),
    (Tree, Tree(n=1, below=[Tree(n=2), Tree(n=3)])),
    (Box[UUID], Box(inside=SOME_ID)),
    (Plain, Plain(n=1, at=NOW)),
    (Attrs, Attrs(1, {"a"})),
    (Annotated[UUID, "a note"], SOME_ID),
    (Any, {"a": [1, 2.0, None, True, "x"]}),
]

REFUSED = [
    str | bytes,
    datetime | str,
    datetime | date,
    UUID | str,
    Decimal | UUID,
    bytes | None | Colour,
    Colour | str,
    Size | int,
    Kind | Size | int,
    list[int] | set[int],
    list[int] | tuple[int, ...],
    dict[str, int] | Item,
    Same1 | Same2,
    Item | Where,
    dict[int, str],
    dict[bool, str],
    dict[tuple[int, int], str],
    dict[float, str],
    Pairs,
    complex,
    fractions.Fraction,
    pathlib.Path,
    ipaddress.IPv4Address,
    re.Pattern,
    ZoneInfo,
    bytearray,
    memoryview,
    range,
    object,
    type,
    type[int],
    abc.Callable,
    abc.Sequence[int],
    abc.Iterable[int],
    collections.deque[int],
    collections.Counter,
    collections.OrderedDict[str, int],
    NeedsMore,
    Box,
    T,
    Literal[b"a"],
    dt.tzinfo,
    decimal.Context,
]


def test_there_are_as_many_types_as_are_promised():
    assert len({repr(hint) for hint, _ in COME_BACK} | {repr(hint) for hint in REFUSED}) >= 90


@pytest.mark.parametrize(("hint", "value"), COME_BACK, ids=named)
def test_value_comes_back_the_same(hint, value):
    record = record_of(hint)
    codec = JsonCodec(record)
    back = codec.decode(codec.encode(record(value=value))).value
    is_widened = type(value) is int and type(back) is float
    assert type(back) is type(value) or is_widened
    assert back == value or back.isoformat() == value.isoformat()


@pytest.mark.parametrize("hint", REFUSED, ids=named)
def test_type_that_may_not_come_back_is_refused_at_declaration(hint):
    record = record_of(hint)
    with pytest.raises(ConfigError, match=r"field 'value.*' of Holder"):
        App("shop").stream("holders", record=record, partition_by="value")


class Deep(Record):
    orders: dict[str, list[Record]] = {}


class Body(Record):
    body: str | bytes


class Letter(Record):
    parts: dict[str, list[Body]]


def test_path_of_a_refused_field_is_named():
    with pytest.raises(ConfigError, match=r"field 'parts\[\]\[\]\.body' of Letter is str \| bytes"):
        JsonCodec(Letter)


class Order(Record):
    number: int
    items: list[Item] = attrs.field(factory=list)


class Gift(Order):
    wish: str = ""


class Named(Item):
    pass


def test_record_of_a_subclass_is_not_sent():
    for record in (Gift(number=1, wish="much"), Order(number=1, items=[Named(name="a")])):
        with pytest.raises(RecordError, match=r"Gift|Named"):
            JsonCodec(Order).encode(record)


@attrs.frozen(kw_only=True)
class Doubled:
    amount: int = attrs.field(converter=lambda n: n * 2)


@attrs.frozen(kw_only=True)
class Hidden:
    amount: int = attrs.field(default=0, eq=False)
    left_out: int = attrs.field(default=0, init=False)


@dataclasses.dataclass(eq=False)
class ByIdentity:
    n: int


def test_record_that_its_own_class_changes_when_read_is_not_sent():
    with pytest.raises(RecordError, match=r"2 would come back as 4 @ \$\.amount"):
        JsonCodec(Doubled).encode(Doubled(amount=1))
    hidden = Hidden(amount=1)
    assert JsonCodec(Hidden).decode(JsonCodec(Hidden).encode(hidden)).amount == 1
    object.__setattr__(hidden, "left_out", 5)
    with pytest.raises(RecordError, match=r"5 would come back as 0 @ \$\.left_out"):
        JsonCodec(Hidden).encode(hidden)
    assert JsonCodec(ByIdentity).encode(ByIdentity(1)) == b'{"n":1}'


WRONG = [
    (str, b"x"),
    (str, 5),
    (str, "\ud800"),
    (int, True),
    (int, 1.0),
    (int, "1"),
    (float, 2**53 + 1),
    (float, float("nan")),
    (float, "1"),
    (bool, 1),
    (bytes, "x"),
    (bytes, bytearray(b"x")),
    (datetime, date.min),
    (datetime, "2026-01-01"),
    (date, NOW),
    (time, time(1, tzinfo=BERLIN)),
    (time, "01:00"),
    (timedelta, 5),
    (Decimal, 1),
    (Decimal, Decimal("NaN")),
    (Decimal, Decimal("Infinity")),
    (UUID, str(SOME_ID)),
    (Colour, "red"),
    (Kind, "new"),
    (Literal["a", 1], "b"),
    (Literal[1], True),
    (str | int, True),
    (int | None, "1"),
    (Decimal | int, "1"),
    (list[int], (1, 2)),
    (list[int], {1}),
    (tuple[int, ...], [1]),
    (set[int], [1]),
    (set[int], frozenset({1})),
    (frozenset[int], {1}),
    (dict[str, int], {1: 1}),
    (dict[UUID, int], {str(SOME_ID): 1}),
    (Point, (1, 2.0)),
    (Where, {"city": "Ulm", "country": "DE"}),
    (Item, {"name": "a"}),
    (Item, Named(name="a")),
    (Item | Priced, Named(name="a")),
    (Plain, Attrs(1)),
    (Any, (1, 2)),
    (Any, {1: 2}),
    (Any, NOW),
    (Any, Item(name="a")),
    (list, [(1, 2)]),
]


@pytest.mark.parametrize(("hint", "value"), WRONG, ids=named)
def test_value_that_would_come_back_as_another_is_not_sent(hint, value):
    record = record_of(hint)
    with pytest.raises(RecordError, match=r"does not match Holder: .* @ \$\.value"):
        JsonCodec(record).encode(record(value=value))


@pytest.mark.parametrize(
    ("hint", "text"),
    [
        (bytes, '"a"'),
        (bytes, '"ä"'),
        (bytes, "1"),
        (UUID, '"x"'),
        (UUID, "1"),
        (Decimal, '"x"'),
        (Decimal, '"NaN"'),
        (Decimal, "1.5"),
        (time, '"x"'),
        (time, "1"),
        (timedelta, '"P1Y"'),
        (timedelta, '"P"'),
        (timedelta, '"PT99999999999999H"'),
        (timedelta, "1"),
        (Kind, "2.0"),
        (Size, "true"),
        (Literal[1], "true"),
        (Literal[1], "[]"),
        (int | None, "true"),
        (Item | Priced, '{"other": 1}'),
        (Item | Priced, "[]"),
        (Paid | Returned, '{"kind": "lost"}'),
        (Paid | Returned, '{"kind": []}'),
        (list[int], '"12"'),
        (list[int], "{}"),
        (dict[str, int], "[]"),
        (tuple[int, int], "[1]"),
        (Point, "[1, 2, 3]"),
        (Tree, '{"n": 1, "below": [{"n": "x"}]}'),
        (Tree, "null"),
    ],
)
def test_stored_json_of_another_type_is_refused_with_its_path(hint, text):
    with pytest.raises(RecordError, match=r"does not match Holder: .* @ \$\.value") as caught:
        JsonCodec(record_of(hint)).decode(b'{"value":%s}' % text.encode())
    assert "Error(" not in str(caught.value)


def test_durations_are_read_in_each_form_of_iso_8601():
    codec = JsonCodec(record_of(timedelta))
    for text, wanted in (
        ("P1DT2H3M4.5S", timedelta(days=1, hours=2, minutes=3, seconds=4.5)),
        ("-PT0.000001S", timedelta(microseconds=-1)),
        ("P1W", timedelta(weeks=1)),
    ):
        assert codec.decode(b'{"value":"%s"}' % text.encode()).value == wanted


class Later(Record):
    at: "datetime"
    more: "Nowhere"  # noqa: F821


def test_annotation_that_names_nothing_is_refused():
    with pytest.raises(ConfigError, match="Nowhere"):
        JsonCodec(Later)


class Shelf(Record):
    path: pathlib.Path
    others: list[pathlib.Path] | None = None


SHELVES = JsonCodec(Shelf, hooks={pathlib.Path: (str, pathlib.Path)})


def test_hooks_give_the_json_of_a_type_of_the_users():
    shelf = Shelf(path=pathlib.Path("/a"), others=[pathlib.Path("b")])
    assert SHELVES.encode(shelf) == b'{"path":"/a","others":["b"]}'
    assert SHELVES.decode(SHELVES.encode(shelf)) == shelf
    with pytest.raises(RecordError, match=r"@ \$\.path"):
        SHELVES.decode(b'{"path": 5}')


def test_hook_that_changes_a_value_is_found_when_it_is_sent():
    codec = JsonCodec(Shelf, hooks={pathlib.Path: (lambda path: path.name, pathlib.Path)})
    with pytest.raises(RecordError, match=r"would come back as .* @ \$\.path"):
        codec.encode(Shelf(path=pathlib.Path("/a/b")))


class Grams:
    def __init__(self, n):
        self.n = n


def test_value_without_equality_is_compared_by_its_json():
    record = record_of(Grams)
    codec = JsonCodec(record, hooks={Grams: (lambda grams: grams.n, Grams)})
    assert codec.decode(codec.encode(record(value=Grams(5)))).value.n == 5


def test_hooks_go_before_what_is_built_in():
    record = record_of(datetime)
    hooks = {datetime: (lambda at: at.timestamp(), lambda n: datetime.fromtimestamp(n, UTC))}
    assert JsonCodec(record, hooks=hooks).decode(b'{"value": 0}').value.year == 1970


@pytest.mark.parametrize(
    "hooks",
    [
        {pathlib.Path: str},
        {pathlib.Path: (str, 1)},
        {pathlib.Path: (str,)},
        [pathlib.Path],
    ],
)
def test_hooks_that_are_no_pairs_of_functions_are_refused(hooks):
    with pytest.raises(ConfigError, match="hooks"):
        JsonCodec(Shelf, hooks=hooks)


def test_hooked_type_beside_others_is_refused():
    """Refuse a union with a hooked type, whose JSON may be anything."""
    with pytest.raises(ConfigError, match="value"):
        JsonCodec(record_of(pathlib.Path | int), hooks={pathlib.Path: (str, pathlib.Path)})


def test_bytes_are_base64_and_nothing_else_is_read():
    record = record_of(bytes)
    assert JsonCodec(record).encode(record(value=b"\xff\xfe")) == b'{"value":"//4="}'
    with pytest.raises(RecordError, match=r"base64.*@ \$\.value"):
        JsonCodec(record).decode(b'{"value":"{~~~}"}')
