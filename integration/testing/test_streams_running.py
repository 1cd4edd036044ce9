"""Test `running`: workers in this process, on a real Redis."""

import asyncio
import random
import re

import pytest
from servers_support import wait_until

from rink.streams import App, Record
from rink.testing.streams import running

pytestmark = pytest.mark.waits


class Order(Record):
    number: int
    customer: str


def test_running_app_processes_all_events_before_drain_returns():
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


def test_drain_timeout_names_the_processor_that_is_behind():
    app = App("shop")
    orders = app.stream("orders", record=Order, partition_by="customer", partition_count=2)

    @app.processor(orders, on_error="quarantine", max_attempts=1, retry_for=0)
    async def bill(events):
        async for order in events.records():
            raise ValueError(order.number)

    with running(app) as run:
        orders.send_blocking(Order(number=7, customer="x"))

        def is_named():
            with pytest.raises(AssertionError) as caught:
                run.drain(1)
            message = r"bill in orders/\d: 1 event, quarantined: .*ValueError: 7"
            return re.search(message, str(caught.value))

        wait_until(is_named)


def test_drain_waits_for_events_that_a_processor_sends_on():
    app, seen = App("shop"), []
    settings = {"record": Order, "partition_by": "customer", "partition_count": 4}
    orders, bills = app.stream("orders", **settings), app.stream("bills", **settings)

    @app.processor(bills, initial_delay=0.1)  # `drain` checks it first
    async def note(events):
        async for order in events.records():
            await asyncio.sleep(0.01)
            seen.append(order.number)

    @app.processor(orders, commit="manual", initial_delay=0.1)
    async def bill(events):
        async for order in events.records():
            await asyncio.sleep(random.random() * 0.01)
            await events.commit([(bills, order)])

    with running(app) as run:
        for number in range(60):
            orders.send_blocking(Order(number=number, customer=str(number)))
            run.drain()
            assert number in seen
