"""Declare the app whose streams the tests use; executors import it, too."""

import json
import os
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from uuid import UUID

import attrs

from rink.streams import App, Record

app = App("shop", redis=os.environ.get("RINK_TEST_SPARK_REDIS", "redis://127.0.0.1:1"))


class Order(Record):
    order_id: int
    customer: str
    amount: int = 0
    note: str | None = None


class Total(Record):
    customer: str
    total: int
    count: int = 0


class Rich(Record):
    name: str
    at: datetime
    tags: list[str]
    parts: dict[str, int]
    first: Total


class Full(Record):
    """A field of each kind that a column can hold."""

    name: str
    at: datetime
    day: date
    raw: bytes
    ratio: float
    is_new: bool
    tags: list[str]
    parts: dict[str, int]
    first: Total
    rest: list[Total]
    by_name: dict[str, Total]
    deep: dict[str, list[int]]
    key: UUID
    price: Decimal
    opens: time
    lasts: timedelta
    note: str | None = None
    last: Total | None = None


@attrs.frozen
class Priced:
    """A price as money, in a codec of its own."""

    item: str
    price: Decimal
    at: datetime | None = None


class PricedCodec:
    def encode(self, record):
        plain = {"item": record.item, "price": str(record.price)}
        if record.at is not None:
            plain["at"] = record.at.isoformat()
        return json.dumps(plain).encode()

    def decode(self, data):
        plain = json.loads(data)
        at = datetime.fromisoformat(plain["at"]) if "at" in plain else None
        return Priced(plain["item"], Decimal(plain["price"]), at)


prices = app.stream(
    "prices", record=Priced, partition_by="item", partition_count=2, codec=PricedCodec()
)
orders = app.stream("orders", record=Order, partition_by="customer", partition_count=4)
totals = app.stream("totals", record=Total, partition_by="customer", partition_count=3)
rich = app.stream("rich", record=Rich, partition_by="name", partition_count=2)
full = app.stream("full", record=Full, partition_by="name", partition_count=2)
small = app.stream(
    "small", record=Total, partition_by="customer", partition_count=2, partition_size=10
)
oldest = app.stream(
    "oldest", record=Order, partition_by="customer", partition_count=1, partition_size=50,
    trim="oldest",
)  # fmt: skip
