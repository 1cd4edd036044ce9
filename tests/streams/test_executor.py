"""End the tasks of one processor in one worker, on etcd in memory."""

import asyncio
import contextlib
import sys
from typing import Any, cast

import pytest
from jumping import pass_time
from processors_support import TTL_S, Leg

from rink import aio
from rink.streams import App
from rink.streams.consumer import executor, partition
from rink.streams.consumer.executor import Executor
from rink.streams.consumer.membership import Orders
from rink.streams.consumer.reader import Reader
from rink.streams.store.byte_limits import ByteLimits, SharedMemory
from rink.testing.memory.cluster import MemoryCluster


class Nothing:
    """A store that gets no requests."""

    limits = ByteLimits()


class Deaf(Reader):
    """A reader that loses its first cancellation.

    A call to Redis may lose it on Python 3.11. Without a second one the reader ends after ten
    seconds.
    """

    def __init__(self):
        super().__init__(cast("Any", Nothing()), 1, SharedMemory(1))
        self.cancelled = 0
        self.reads = asyncio.Event()

    async def run(self):
        self.reads.set()
        for _ in range(2):
            try:
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=5)
            except asyncio.CancelledError:
                self.cancelled += 1


@pytest.fixture
def reader(monkeypatch):
    reader = Deaf()
    monkeypatch.setattr(executor, "make_reader", lambda store, prefetch, held: reader)
    return reader


@contextlib.asynccontextmanager
async def an_executor(cluster):
    """Make an executor of one partition.

    The tests end it before its processor is called.
    """
    app = App("shop")
    legs = app.stream("legs", record=Leg, partition_by="who", partition_count=1)

    @app.processor(legs, initial_delay=0)
    async def note(events):
        raise AssertionError("its partition ends before that")

    nothing = cast("Any", None)
    async with aio.Session(cluster.client(), ttl=TTL_S) as session:
        yield Executor(
            app.processors["note"],
            nothing,
            session,
            name="a",
            metrics=nothing,
            suspects=nothing,
            held=nothing,
            halt=nothing,
        )


def test_processor_that_ends_its_process_leaves_no_task_behind(reader, monkeypatch):
    """End all tasks after SystemExit.

    asyncio cancels each task only once, and waits for all of them without end.
    """

    async def leave(self):
        await reader.reads.wait()
        sys.exit(3)

    monkeypatch.setattr(partition.PartitionGrant, "run", leave)

    async def main(cluster):
        async with an_executor(cluster) as running:
            await running.run(Orders())

    with MemoryCluster() as cluster, pytest.raises(SystemExit):
        asyncio.run(main(cluster))
    assert reader.cancelled == 2


def test_executor_cancelled_twice_keeps_threads_until_the_group_is_left(reader, monkeypatch):
    async def last(self):
        await self._role.lost.wait()

    monkeypatch.setattr(partition.PartitionGrant, "run", last)

    async def main(cluster):
        async with an_executor(cluster) as executed:
            leaves, may_leave, leave = asyncio.Event(), asyncio.Event(), executed.rink.leave

            async def leave_late(*, wait, now):
                assert wait, "grace bounds it, which may be longer than leave_timeout"
                leaves.set()
                await may_leave.wait()
                await leave(wait=wait, now=now)

            monkeypatch.setattr(executed.rink, "leave", leave_late)
            running = asyncio.create_task(executed.run(Orders()))
            await reader.reads.wait()
            running.cancel()
            await leaves.wait()
            for _ in range(5):
                running.cancel()
                await pass_time(0)
            assert not executed._context.given_up.is_set()
            may_leave.set()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert executed._context.given_up.is_set()

    with MemoryCluster() as cluster:
        asyncio.run(main(cluster))
