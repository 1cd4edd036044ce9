"""Check how type checkers see streams.

`make types` checks this file, and nothing runs it. Each `type: ignore` stands where a mistake must
be found: an unneeded one is an error itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any, assert_type

from rink.streams import App, BlockingEvents, Event, Events, JsonCodec, Record, Stream

app = App("shop")


class Order(Record):
    customer: str
    amount: int = 0


class Total(Record):
    customer: str
    total: Decimal


@dataclasses.dataclass(frozen=True)
class Alert:
    text: str


orders = app.stream("orders", record=Order, partition_by="customer")
totals = app.stream("totals", record=Total, partition_by=lambda total: total.customer)
alerts = app.stream("alerts", record=Alert, partition_by="text")


def streams() -> None:
    assert_type(orders, Stream[Order])
    assert_type(alerts, Stream[Alert])
    assert_type(JsonCodec(Order, hooks={Path: (str, Path)}), JsonCodec[Order])
    app.stream("a", record=Order, partition_by="customer", codec=JsonCodec(Order))
    app.stream("b", record=Order, partition_by=lambda o: o.shop)  # type: ignore[attr-defined]
    totals = JsonCodec(Total)
    app.stream("c", record=Order, partition_by="customer", codec=totals)  # type: ignore[misc]
    orders.send_blocking(Order(customer="ann"))
    orders.send_blocking(Total(customer="ann", total=Decimal(1)))  # type: ignore[arg-type]
    orders.send_many_blocking([Order(customer="ann"), Alert("x")])  # type: ignore[list-item]


@app.processor(orders)
async def bill(events: Events[Order]) -> None:
    async for event in events:
        assert_type(event, Event[Order])
        assert_type(event.record, Order)
    async for order in events.records():
        assert_type(order, Order)
    async for batch in events.take(10).records():
        assert_type(batch, list[Order])


@app.processor(orders, name="plain")
def bill_in_a_thread(events: BlockingEvents[Order]) -> None:
    for order in events.records():
        assert_type(order, Order)
    events.commit([(totals, Total(customer="a", total=Decimal(1)))])
    events.commit([(totals, Order(customer="a"))])  # type: ignore[misc]


@app.processor(orders, name="untyped")
async def untyped(events: Any) -> Any:
    async for order in events.records():
        print(order)


@app.processor(orders, name="any_record")
async def log_each(events: Events[Record]) -> None:
    """Log the records of several streams."""


class Billing:
    async def run(self, events: Events[Order]) -> None: ...


app.processor(orders, name="method")(Billing().run)


@app.processor(orders, name="wrong")  # type: ignore[arg-type]
async def wrong(events: Events[Total]) -> None: ...


@app.processor(orders, name="wrong_in_a_thread")  # type: ignore[arg-type]
def wrong_in_a_thread(events: BlockingEvents[Total]) -> None: ...


@app.processor(orders, name="not_blocking")  # type: ignore[arg-type]
def not_blocking(events: Events[Order]) -> None: ...


@app.processor(orders, name="blocking")  # type: ignore[arg-type]
async def blocking(events: BlockingEvents[Order]) -> None: ...


@app.processor(alerts, name="dataclasses")
async def dataclasses_too(events: Events[Alert]) -> None: ...


async def outputs(events: Events[Order], untyped_pairs: Any) -> None:
    total = Total(customer="a", total=Decimal(1))
    await events.commit()
    await events.commit([(totals, total)])
    await events.commit((totals, total) for _ in range(3))
    await events.commit({totals: total}.items())
    await events.commit([totals.output(total), alerts.output(Alert("x"))])
    pairs = [totals.output(total)]
    pairs.append(alerts.output(Alert("x")))
    await events.commit(pairs)
    await events.commit(untyped_pairs)
    await events.commit([(totals, Order(customer="a"))])  # type: ignore[misc]
    await events.commit((totals, Alert("x")) for _ in range(3))  # type: ignore[misc]
    await events.commit([totals.output(Alert("x"))])  # type: ignore[arg-type]
    await events.commit([total])  # type: ignore[arg-type]


@asynccontextmanager
async def timed(batch: list[Event[Order]]) -> AsyncIterator[None]:
    yield


@asynccontextmanager
async def of_totals(batch: list[Event[Total]]) -> AsyncIterator[None]:
    yield


@app.processor(orders, name="surrounded", middleware=[timed])
async def surrounded(events: Events[Order]) -> None: ...


@app.processor(orders, name="wrongly_surrounded", middleware=[of_totals])  # type: ignore[list-item]
async def wrongly_surrounded(events: Events[Order]) -> None: ...
