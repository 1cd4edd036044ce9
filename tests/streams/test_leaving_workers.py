"""Leave as a worker, with `handover_wait`, on etcd in memory."""

import asyncio
import contextlib
from typing import Any, cast

import pytest
from jumping import pass_time
from processors_support import TTL_S, Leg

from rink import aio
from rink.core.state_tables import Life
from rink.streams import App
from rink.streams.consumer import executor, partition
from rink.streams.consumer.executor import Executor
from rink.streams.consumer.membership import Orders, leave
from rink.testing.memory.cluster import MemoryCluster

LONG_S = 20.0
NOTHING = cast("Any", None)


class Reader:
    """A reader that reads nothing, and fails on order."""

    def __init__(self):
        self.fails = asyncio.Event()

    async def run(self):
        await self.fails.wait()
        raise OSError("the reader failed")

    async def close(self):
        pass


@pytest.fixture
def readers(monkeypatch):
    """Return the readers, in the order of their executors.

    Each partition works until it is lost.
    """
    made = []

    def make(store, prefetch, held):
        made.append(Reader())
        return made[-1]

    async def work(self):
        await self._role.lost.wait()

    monkeypatch.setattr(executor, "make_reader", make)
    monkeypatch.setattr(partition.PartitionGrant, "run", work)
    return made


def executor_of(session, stream_name, wait_s):
    app = App(f"shop-{stream_name}")
    stream = app.stream(stream_name, record=Leg, partition_by="who", partition_count=1)

    @app.processor(stream, initial_delay=0)
    async def note(events):
        raise AssertionError("nothing is read")

    return Executor(
        app.processors["note"],
        NOTHING,
        session,
        name="a",
        metrics=NOTHING,
        suspects=NOTHING,
        held=NOTHING,
        halt=NOTHING,
        handover_wait=wait_s,
    )


async def until(condition):
    async with asyncio.timeout(LONG_S):
        while not condition():
            await pass_time(0.005)


def life(running):
    return running.rink._engine.node.living.state


@contextlib.asynccontextmanager
async def a_worker(cluster, *stream_names, wait_s=1000.0):
    """Yield executors that work and offer, with their orders and tasks."""
    async with aio.Session(cluster.client(), ttl=TTL_S) as session:
        executors = [executor_of(session, name, wait_s) for name in stream_names]
        orders = Orders()
        tasks = [asyncio.create_task(one.run(orders)) for one in executors]
        await until(lambda: all(one.rink._opened and one.rink.status().held for one in executors))
        orders.leave.set()
        await until(lambda: all(life(one) is Life.OFFERING for one in executors))
        yield executors, orders, tasks


def run(scenario):
    with MemoryCluster() as cluster:
        asyncio.run(asyncio.wait_for(scenario(cluster), 3 * LONG_S))


def test_worker_serves_until_each_group_has_a_successor(readers):
    """Keep waiting for the other groups after the first is left."""

    async def scenario(cluster):
        async with (
            a_worker(cluster, "legs", "arms") as (executors, orders, tasks),
            aio.Session(cluster.client(), ttl=TTL_S) as session,
        ):
            groups = [one.rink.group for one in executors]
            async with aio.Rink(
                session, groups[0], name="b", scheme=executors[0]._processor.scheme
            ):
                await asyncio.wait_for(tasks[0], LONG_S)
                assert life(executors[1]) is Life.OFFERING
                assert not orders.now.is_set()
                orders.hurry()
                await asyncio.wait_for(tasks[1], LONG_S)

    run(scenario)


def test_worker_whose_reader_fails_waits_for_no_successor(readers):
    async def scenario(cluster):
        async with a_worker(cluster, "legs", "arms") as (_, orders, tasks):
            readers[0].fails.set()
            with pytest.raises(OSError, match="the reader failed"):
                await asyncio.wait_for(tasks[0], LONG_S)
            await asyncio.wait_for(tasks[1], LONG_S)
            assert orders.now.is_set()

    run(scenario)


def test_worker_that_is_cancelled_waits_for_no_successor(readers):
    async def scenario(cluster):
        async with a_worker(cluster, "legs") as (_, _, tasks):
            tasks[0].cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(tasks[0], LONG_S)

    run(scenario)


def test_worker_that_fails_before_it_leaves_waits_for_nobody(readers):
    async def scenario(cluster):
        async with aio.Session(cluster.client(), ttl=TTL_S) as session:
            one = executor_of(session, "legs", 1000.0)
            task = asyncio.create_task(one.run(Orders()))
            await until(lambda: one.rink._opened and one.rink.status().held)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, LONG_S)

    run(scenario)


def test_leave_hears_an_order_that_was_given_before():
    calls = []

    class Rink:
        async def leave(self, *, wait, now):
            calls.append((wait, now))

    async def scenario(_):
        orders = Orders()
        orders.hurry()
        await leave(cast("Any", Rink()), orders)

    run(scenario)
    assert calls[0] == (True, True)


def test_leave_survives_a_second_one_that_ends_first():
    class Rink:
        def __init__(self):
            self.calls = 0

        async def leave(self, *, wait, now):
            self.calls += 1
            if self.calls == 1:
                await pass_time(0.05)

    async def scenario(_):
        orders = Orders()
        leaving = asyncio.create_task(leave(cast("Any", Rink()), orders))
        await pass_time(0)
        orders.hurry()
        await leaving

    run(scenario)
