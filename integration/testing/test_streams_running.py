"""An app that a test runs: workers in its process, an etcd in memory, a real Redis."""

import pytest

from rink.streams import App, Record
from rink.testing.streams import running


class Order(Record):
    number: int
    customer: str


def test_an_app_runs_in_a_test_and_can_be_waited_for():
    app, seen = App("shop"), []
    orders = app.stream("orders", record=Order, partition_by="customer", partition_count=4)

    @app.processor(orders, initial_delay=0.1)
    async def bill(events):
        async for order in events.records():
            seen.append(order.number)

    with running(app, workers=2) as run:
        orders.send_many_blocking(Order(number=n, customer=f"c{n % 7}") for n in range(100))
        assert orders.send_blocking(Order(number=100, customer="x"))
        run.drain()
        assert sorted(seen) == list(range(101))
    with running(app) as run:
        assert run.redis_url


def test_whoever_is_behind_is_named():
    app = App("shop")
    orders = app.stream("orders", record=Order, partition_by="customer", partition_count=2)

    @app.processor(orders, on_error="quarantine", attempts=1)
    async def bill(events):
        async for order in events.records():
            raise ValueError(order.number)

    with running(app) as run:
        orders.send_blocking(Order(number=7, customer="x"))
        with pytest.raises(AssertionError, match=r"bill in orders/\d: 1 events .*ValueError: 7"):
            run.drain(2)
