"""Hold the msgspec codec to the strictness of the built-in one."""

import dataclasses
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest

from rink.errors import ConfigError
from rink.streams import App, JsonCodec, MsgspecCodec, Record, RecordError


class Item(msgspec.Struct, frozen=True):
    name: str


class Named(Item, frozen=True):
    number: int = 0


class Order(msgspec.Struct, frozen=True, kw_only=True):
    id: UUID
    customer: str
    amount: Decimal = Decimal(0)
    at: datetime | None = None
    price: float = 0.0
    items: list[Item] = []
    by_name: dict[str, tuple[int, ...]] = {}
    other: Any = None


class Plain(Record):
    id: UUID
    data: bytes = b""
    lasts: timedelta = timedelta()
    at: datetime | None = None


@dataclasses.dataclass
class Data:
    n: int


BERLIN = ZoneInfo("Europe/Berlin")
ID = UUID(int=5)
ORDERS = MsgspecCodec(Order)


@pytest.mark.parametrize(
    "record",
    [
        Order(
            id=ID, customer="ann", amount=Decimal("1.10"), items=[Item("a")], by_name={"x": (1,)}
        ),
        Order(id=ID, customer="", at=datetime(2026, 1, 2, tzinfo=UTC)),
        Order(id=ID, customer="", at=datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN)),
        Plain(id=ID, data=b"\xff", lasts=timedelta(days=-1, seconds=5)),
        Data(5),
    ],
    ids=repr,
)
def test_msgspec_codec_record_comes_back_the_same(record):
    codec = MsgspecCodec(type(record))
    back = codec.decode(codec.encode(record))
    assert type(back) is type(record)
    assert repr(back) == repr(record) or back.at.isoformat() == record.at.isoformat()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"customer": 5}, r"\$\.customer"),
        ({"id": "x"}, r"\$\.id"),
        ({"id": str(ID)}, r"would come back as UUID.* @ \$\.id"),
        ({"price": float("nan")}, r"\$\.price"),
        ({"items": [Named("a", 5)]}, r"Named.* would come back as Item.* @ \$\.items\[0\]"),
        ({"items": (Item("a"),)}, r"@ \$\.items"),
        ({"by_name": {"x": [1]}}, r"@ \$\.by_name\['x'\]"),
        ({"other": (1, 2)}, r"@ \$\.other"),
        ({"other": ID}, r"@ \$\.other"),
        ({"other": object()}, "object"),
    ],
)
def test_msgspec_codec_value_that_would_change_not_sent(wrong, told):
    with pytest.raises(RecordError, match=f"does not match Order: .*{told}"):
        ORDERS.encode(Order(**({"id": ID, "customer": "a"} | wrong)))


def test_msgspec_codec_record_of_subclass_not_sent():
    with pytest.raises(RecordError, match=r"Named.* would come back as Item"):
        MsgspecCodec(Item).encode(Named("a", 5))


@pytest.mark.parametrize("data", [b"{", b"\xff", b"[]", b'{"id": 5}', b'{"customer": "a"}'])
def test_msgspec_codec_bytes_that_do_not_match_refused(data):
    with pytest.raises(RecordError, match="does not match Order"):
        ORDERS.decode(data)


class Either(msgspec.Struct):
    body: str | bytes


@pytest.mark.parametrize("record", [Either, int, dict[str, int]])
def test_msgspec_codec_class_that_cannot_be_read_refused(record):
    with pytest.raises(ConfigError):
        MsgspecCodec(record)


def test_msgspec_codec_reads_what_json_codec_wrote_and_the_other_way():
    record = Plain(id=ID, data=bytes(range(256)), lasts=timedelta(days=-3, microseconds=7),
                   at=datetime(2026, 1, 2, 3, 4, 5, 6, UTC))  # fmt: skip
    one, other = JsonCodec(Plain), MsgspecCodec(Plain)
    assert other.decode(one.encode(record)) == record
    assert one.decode(other.encode(record)) == record


def test_msgspec_codec_hooks_make_types_of_the_users():
    class Money(msgspec.Struct):
        value: complex

    codec = MsgspecCodec(
        Money,
        enc_hook=lambda value: [value.real, value.imag],
        dec_hook=lambda kind, plain: kind(*plain),
    )
    assert codec.decode(codec.encode(Money(1 + 2j))) == Money(1 + 2j)


def test_stream_of_structs_partitions_by_their_fields():
    orders = App("shop").stream("orders", record=Order, partition_by="customer", codec=ORDERS)
    order = Order(id=ID, customer="ann")
    assert orders.record_of(orders.encode(order)) == order
    assert orders.partition_of(order) in range(16)
