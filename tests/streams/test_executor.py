"""One processor in one worker, on etcd in memory and without Redis: how its tasks end."""

import asyncio
import sys
from typing import Any, cast

import pytest
from processors_support import Leg

from rink import aio
from rink.streams import App, executor, partition
from rink.streams.executor import Executor
from rink.streams.reader import Reader
from rink.testing.memory import MemoryCluster


class Deaf(Reader):
    """Loses its first cancellation, as a call to Redis may do on Python 3.11; ends by itself in the end."""

    def __init__(self):
        super().__init__(cast("Any", None), 1)
        self.cancelled = 0
        self.reads = asyncio.Event()

    async def run(self):
        self.reads.set()
        for _ in range(2):
            try:
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=5)
            except asyncio.CancelledError:
                self.cancelled += 1


def test_a_processor_that_ends_its_process_leaves_no_task_behind(monkeypatch):
    """asyncio cancels each task once when SystemExit has left its loop, and waits for them for ever."""
    reader = Deaf()
    monkeypatch.setattr(executor, "make_reader", lambda store, prefetch: reader)

    async def leave(self):
        await reader.reads.wait()
        sys.exit(3)

    monkeypatch.setattr(partition.Grant, "run", leave)
    app = App("shop")
    legs = app.stream("legs", record=Leg, partition_by="who", partition_count=1)

    @app.processor(legs, initial_delay=0)
    async def note(events):
        raise AssertionError("its partition ends before that")

    async def main(cluster):
        async with aio.Session(cluster.client(), ttl=5) as session:
            running = Executor(
                app.processors["note"],
                cast("Any", None),
                session,
                name="a",
                metrics=cast("Any", None),
                marks=cast("Any", None),
                halt=cast("Any", None),
            )
            await running.run(asyncio.Event())

    with MemoryCluster() as cluster, pytest.raises(SystemExit):
        asyncio.run(main(cluster))
    assert reader.cancelled == 2
