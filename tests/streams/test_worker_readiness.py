"""Report a worker as ready once it has joined its groups."""

import asyncio
from typing import Any, cast

import pytest
from jumping import pass_time
from processors_support import TTL_S, Leg

from rink import aio
from rink.streams import App, Worker
from rink.streams.consumer import executor, partition, worker
from rink.testing.memory.cluster import MemoryCluster

LONG_S = 20.0
NOTHING = cast("Any", None)


class Reader:
    """A reader that reads nothing."""

    async def run(self):
        await asyncio.Event().wait()

    async def close(self):
        pass


@pytest.fixture(autouse=True)
def without_redis(monkeypatch):
    async def wait(*_):
        await asyncio.Event().wait()

    async def work(self):
        await self._role.lost.wait()

    monkeypatch.setattr(executor, "make_reader", lambda *_: Reader())
    monkeypatch.setattr(partition.PartitionGrant, "run", work)
    monkeypatch.setattr(worker, "monitor_partitions", wait)
    monkeypatch.setattr(worker, "Evictions", lambda _: NOTHING)


def shop(*processors):
    app = App("shop")
    stream = app.stream("legs", record=Leg, partition_by="who", partition_count=1)

    async def note(events):
        raise AssertionError("nothing is read")

    for name in processors:
        app.processor(stream, name=name)(note)
    return app


async def until(condition):
    async with asyncio.timeout(LONG_S):
        while not condition():
            await pass_time(0.005)


def run(scenario):
    with MemoryCluster() as cluster:
        asyncio.run(asyncio.wait_for(scenario(cluster), 3 * LONG_S))


def test_worker_is_ready_once_every_group_is_joined():
    """Join a group in which another member has the name at first."""

    async def scenario(cluster):
        made = Worker(shop("bill", "ship"), name="w")
        assert not made.is_ready
        async with aio.Session(cluster.client(), ttl=TTL_S) as session:
            async with aio.Rink(session, "shop/ship", name="w"):
                running = asyncio.create_task(made._run(NOTHING, session))
                await until(lambda: made.executors and made.executors["bill"].is_joined)
                assert not made.is_ready
            await until(lambda: made.is_ready)
            made.stop(now=True)
            await running

    run(scenario)


def test_worker_with_tasks_alone_is_ready_once_it_has_joined():
    async def scenario(cluster):
        app = App("shop")

        @app.task(at_start=True)
        async def sweep():
            await asyncio.Event().wait()

        made = Worker(app, name="w")
        async with aio.Session(cluster.client(), ttl=TTL_S) as session:
            async with aio.Rink(session, "shop", name="w"):
                running = asyncio.create_task(made._run(NOTHING, session))
                await until(lambda: made._session is not None)
                assert not made.is_ready
            await until(lambda: made.is_ready)
            made.stop(now=True)
            await running

    run(scenario)


def test_worker_whose_session_is_closed_is_not_ready():
    async def scenario(cluster):
        made = Worker(shop("bill"), name="w")
        async with aio.Session(cluster.client(), ttl=TTL_S) as session:
            running = asyncio.create_task(made._run(NOTHING, session))
            await until(lambda: made.is_ready)
            made.stop(now=True)
            await running
        assert not made.is_ready

    run(scenario)


def test_worker_whose_processor_is_named_twice_gets_ready():
    async def scenario(cluster):
        made = Worker(shop("bill"), ["bill", "bill"], name="w")
        async with aio.Session(cluster.client(), ttl=TTL_S) as session:
            running = asyncio.create_task(made._run(NOTHING, session))
            await until(lambda: made.executors and made.executors["bill"].is_joined)
            assert made.is_ready
            made.stop(now=True)
            await running

    run(scenario)
