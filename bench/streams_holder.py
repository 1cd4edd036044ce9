"""Run a worker that notes when it processed each event.

`child.Child` drives it. The worker runs on a thread of its own, and timed code only appends to
lists.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import threading
import time
from typing import Any

from child import now, serve

from rink.streams import App, Record, Worker

logging.basicConfig(level=logging.CRITICAL)
given = json.loads(sys.argv[1])
LOOK_S = 0.005
LONG_S = 60.0


class Tick(Record):
    n: int
    who: str
    at: float


app = App(
    given["app"],
    redis=given["redis"],
    etcd=given["etcd"],
    ttl=given["ttl"],
    session={"prefix": given["prefix"]},
)
ticks = app.stream("sales", record=Tick, partition_by="who", partition_count=given["partitions"])
events: list[tuple[float, int, float]] = []  # processed at, partition, sent at
begins: list[tuple[float, int]] = []  # the processor was called
ends: list[tuple[float, int]] = []  # it has returned: the end of a drain
owned: set[int] = set()
gc.collect()
gc.freeze()  # as `rink worker` does: a full collection goes through every module, 60 ms
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
workers: list[tuple[Worker, Any]] = []


@app.processor(ticks, initial_delay=600, rebalance_delay=given["delay"])
async def note(given):
    partition = given.partition
    begins.append((now(), partition))
    owned.add(partition)
    try:
        async for one in given.records():
            events.append((now(), partition, one.at))
    finally:
        ends.append((now(), partition))
        owned.discard(partition)


def start(name: str) -> None:
    async def make() -> Worker:
        return Worker(app, name=name)

    worker = asyncio.run_coroutine_threadsafe(make(), loop).result()
    workers.append((worker, asyncio.run_coroutine_threadsafe(worker.run(), loop)))


def knows(name: str) -> None:
    """Wait until the worker has another in its view, and has joined itself."""
    worker, _ = workers[-1]
    until(lambda: any(one.name == name for one in worker.executors["note"].rink.members))


def owns(count: int) -> dict[str, Any]:
    """Wait until it owns so many partitions."""
    until(lambda: len(owned) == count)
    return {"owned": sorted(owned)}


def seen(count: int) -> None:
    """Wait until it has processed events of so many partitions."""
    until(lambda: len({partition for _, partition, _ in events[:]}) == count)


def leave() -> dict[str, Any]:
    """Leave as at SIGTERM; return the times when it has left."""
    worker, running = workers.pop()
    at = now()
    loop.call_soon_threadsafe(worker.stop)
    running.result(LONG_S)
    return {"asked_at": at, "left_at": now()}


def noted() -> dict[str, Any]:
    """Return all notes since the last call."""
    found = {"events": events[:], "begins": begins[:], "ends": ends[:]}
    for name, notes in (("events", events), ("begins", begins), ("ends", ends)):
        del notes[: len(found[name])]
    return found


def until(happens: Any) -> None:
    end = now() + LONG_S
    while not happens():
        if now() > end:
            raise TimeoutError(f"it did not happen within {LONG_S:g} s; owned: {sorted(owned)}")
        time.sleep(LOOK_S)


serve({"start": start, "knows": knows, "owns": owns, "seen": seen, "leave": leave, "noted": noted})
