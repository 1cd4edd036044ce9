"""Run Runnel in a process with an environment of its own.

It sends events, then processes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import time
from typing import Any

import shim  # noqa: F401 - before Runnel
from child import serve
from runnel import App, Record
from runnel.worker import Worker
from sales import PARTITIONS, Clock, sale

logging.disable()  # its worker speaks of each end on stdout
given = json.loads(sys.argv[1])
AT_ONCE = 1000
SIZE = 1_000_000  # entries of a partition; older ones are lost
ENDS_WITHIN_S = 5.0


class Sale(Record):
    n: int
    who: str
    amount: int


def make() -> tuple[App, Any]:
    """Make an app for one event loop, to which its connections belong."""
    app = App(given["app"], redis_url=given["redis"], log_level="critical")
    return app, app.stream(
        "sales", record=Sale, partition_by="who", partition_count=PARTITIONS, partition_size=SIZE
    )


def send(count: int) -> dict[str, float]:
    """Call Runnel's `send` with 1000 records, again and again."""

    async def body() -> dict[str, float]:
        _, sales = make()
        records = [Sale(**sale(number)) for number in range(count)]
        await sales.send(records[0])
        began = time.perf_counter()
        for start in range(1, count, AT_ONCE):
            await sales.send(*records[start : start + AT_ONCE])
        return {"seconds": time.perf_counter() - began}

    return asyncio.run(body())


def process(way: str, count: int) -> dict[str, float]:
    """Run Runnel's worker, and return its times.

    They go from the first event to the last one before the last batches, which wait to be filled.
    """

    async def body() -> dict[str, float]:
        clock, done = Clock(1), asyncio.Event()
        left = count
        app, sales = make()

        def note(events: int) -> None:
            nonlocal left
            clock.begin()
            left -= events
            if left <= 0 and not clock.ended:
                clock.stop()
                done.set()

        async def one_by_one(events):
            total = 0
            async for one in events.records():
                total += one.amount
                note(1)

        async def batches(events):
            total = 0
            async for batch in events.take(100, within=1).records():
                for one in batch:
                    total += one.amount
                note(len(batch))

        # Each as fast as it gets: to fetch more than 8 makes what comes one by one slower.
        settings = {"join_delay": 0} | ({"prefetch_count": 200} if way == "take" else {})
        app.processor(sales, name=way, **settings)({"take": batches}.get(way, one_by_one))
        worker = asyncio.create_task(Worker(app)._start())
        await asyncio.wait(
            [worker, asyncio.create_task(done.wait())], return_when=asyncio.FIRST_COMPLETED
        )
        worker.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await asyncio.wait_for(worker, ENDS_WITHIN_S)
        return {"seconds": clock.ended - clock.began}

    return asyncio.run(body())


serve({"send": send, "process": process})
