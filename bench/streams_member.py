"""Run an app of `rink.streams` in a process.

It processes the events in Redis, listens, or sends. Every command makes an app of its own, whose
name the bench has chosen.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from child import now, serve
from sales import PARTITIONS, Clock, sale

from rink.streams import App, Record, Stream, Worker

logging.basicConfig(level=logging.CRITICAL)  # it speaks of an old etcd
given = json.loads(sys.argv[1])
LARGE = {"max_uncommitted": 2000, "prefetch": 4000}
COMMITTED_LOOK_S = 0.001


class Sale(Record):
    n: int
    who: str
    amount: int


class Stamped(Record):
    n: int
    who: str
    at: float


def make(name: str, record: type[Any]) -> tuple[App, Stream[Any]]:
    app = App(
        name,
        redis=given["redis"],
        etcd=given["etcd"],
        ttl=60,
        session={"prefix": given["prefix"]},
    )
    return app, app.stream("sales", record=record, partition_by="who", partition_count=PARTITIONS)


# ── processing ───────────────────────────────────────────────────────────────────────────────


class Task:
    """Describe a processor's task: `each` events of every partition."""

    def __init__(self, each: int) -> None:
        self.each = each
        self.clock = Clock()
        self.done = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._end)  # a plain function's is called in a thread

    def _end(self) -> None:
        if self.clock.end():
            self.done.set()


def taking(size: int) -> Callable[[Task], Callable[..., Awaitable[None]]]:
    def make_processor(task: Task) -> Callable[..., Awaitable[None]]:
        async def process(events):
            task.clock.begin()
            left, total = task.each, 0
            async for batch in events.take(size).records():
                for one in batch:
                    total += one.amount
                left -= len(batch)
                if not left:
                    task.end()

        return process

    return make_processor


def one_by_one(task: Task) -> Callable[..., Awaitable[None]]:
    async def process(events):
        task.clock.begin()
        left, total = task.each, 0
        async for one in events.records():
            total += one.amount
            left -= 1
            if not left:
                task.end()

    return process


def in_threads(task: Task) -> Callable[..., None]:
    def process(events):
        task.clock.begin()
        left, total = task.each, 0
        for one in events.records():
            total += one.amount
            left -= 1
            if not left:
                task.end()

    return process


KINDS = {
    "take100": (taking(100), {}),
    "take1000": (taking(1000), LARGE),
    "records": (one_by_one, {}),
    "def": (in_threads, {}),
}


def process(app: str, kind: str, each: int) -> dict[str, Any]:
    """Run one worker until all events are processed and committed."""

    async def body() -> dict[str, Any]:
        made, stream = make(app, Sale)
        task, (make_processor, settings) = Task(each), KINDS[kind]
        made.processor(stream, name="work", initial_delay=0, **settings)(make_processor(task))
        async with running(Worker(made)):
            await task.done.wait()
            await committed(made, each)
            return {"seconds": task.clock.stop()}

    gc.collect()
    gc.freeze()  # as `rink worker` does
    return asyncio.run(body())


async def committed(app: App, each: int) -> None:
    """Wait until Redis has it all."""
    store, processor = (await app.connections.open()).store, app.processors["work"]
    for number in range(PARTITIONS):
        while (await store.position(processor.place(number))).processed < each:  # noqa: ASYNC110
            await asyncio.sleep(COMMITTED_LOOK_S)


@contextlib.asynccontextmanager
async def running(worker: Worker) -> AsyncIterator[None]:
    """Run a worker while the `with` lasts."""
    task = asyncio.create_task(worker.run())
    try:
        yield
    finally:
        worker.stop()
        await task
        await worker.app.close()


def listen(app: str, count: int) -> dict[str, Any]:
    """Return the age of each event at its processing, one by one."""

    async def body() -> dict[str, Any]:
        made, stream = make(app, Stamped)
        delays: list[float] = []
        done = asyncio.Event()

        @made.processor(stream, name="work", initial_delay=0)
        async def process(events):
            async for one in events.records():
                delays.append(now() - one.at)
                if len(delays) == count:
                    done.set()

        async with running(Worker(made)):
            await done.wait()
        return {"delays": delays}

    return asyncio.run(body())


# ── sending ──────────────────────────────────────────────────────────────────────────────────


def send(app: str, count: int, how: str) -> dict[str, Any]:
    """Send records that are made already.

    `how` is `many`, one after the `other`, or 100 at `once`.
    """

    async def body() -> dict[str, Any]:
        made, stream = make(app, Sale)
        records = [Sale(**sale(number)) for number in range(count)]
        gc.collect()
        async with made:
            await stream.send(records[0])  # connected, and Redis knows the script
            began = time.perf_counter()
            await {"many": stream.send_many, "other": _one_by_one, "once": _at_once}[how](
                *([] if how == "many" else [stream]), records
            )
            return {"seconds": time.perf_counter() - began}

    return asyncio.run(body())


async def _one_by_one(stream: Stream[Any], records: list[Sale]) -> None:
    for record in records:
        await stream.send(record)


async def _at_once(stream: Stream[Any], records: list[Sale]) -> None:
    for start in range(0, len(records), 100):
        await asyncio.gather(*map(stream.send, records[start : start + 100]))


def pace(app: str, rate: float, count: int) -> dict[str, Any]:
    """Send single events at a steady rate, each with its time."""

    async def body() -> dict[str, Any]:
        made, stream = make(app, Stamped)
        async with made:
            began = now()
            for number in range(count):
                await asyncio.sleep(max(began + number / rate - now(), 0))
                await stream.send(Stamped(n=number, who=f"customer-{number}", at=now()))
            return {"rate": count / (now() - began)}

    return asyncio.run(body())


serve({"process": process, "listen": listen, "send": send, "pace": pace})
