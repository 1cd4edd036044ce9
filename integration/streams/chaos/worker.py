"""Run a worker of the chaos run, and note every processed event.

It has two processors on one stream. `exact` commits by hand, with a copy of each event as its
output. Redis then shows whether an event was lost, doubled, out of order, or written by a process
that was no longer the owner. `plain` commits by itself, and notes each event in a file: at least
once, and again only after an unclean end or a last commit that failed.
"""

import asyncio
import logging
import os
import signal
import sys
import time

from redis.asyncio import Redis

from rink.streams import App, Record, Worker

PARTITIONS = 16
WINDOW = 64
QUICK = {"rebalance_delay": 1.0, "initial_delay": 0.5, "grace": 4.0, "max_uncommitted": WINDOW}


class Ping(Record):
    """Hold one event: the n-th of its key."""

    who: str
    n: int


class Copy(Record):
    """Hold the output of `exact` for one event."""

    who: str
    n: int
    token: int
    worker: str


def connect():
    """Return a client of the Redis that this run has."""
    return Redis.from_url(os.environ["CHAOS_REDIS"], socket_timeout=2.0)


def make_app():
    """Return the app and its two streams."""
    app = App(
        "chaos",
        redis=connect,
        etcd=os.environ["CHAOS_ETCD"],
        ttl=3,
        session={"timeout": 2.0},
    )
    size = {"partition_count": PARTITIONS, "partition_by": "who", "partition_size": 1_000_000}
    pings = app.stream("pings", record=Ping, **(size | {"partition_size": 2_000}))
    copies = app.stream("copies", record=Copy, **size)
    return app, pings, copies


def declare(app, pings, copies, name, notes):
    """Add the processors."""

    @app.processor(pings, **QUICK)
    async def plain(events):
        async for ping in events.records():
            line = f"{time.monotonic_ns()} {events.token} {events.partition} {ping.who} {ping.n}\n"
            os.write(notes, line.encode())
            await asyncio.sleep(0.0002)

    @app.processor(pings, commit="manual", **QUICK)
    async def exact(events):
        async for batch in events.take(WINDOW // 2).records():
            await asyncio.sleep(0.001)
            await events.commit(
                (copies, Copy(who=ping.who, n=ping.n, token=events.token, worker=name))
                for ping in batch
            )


async def main(name, notes_path):
    app, pings, copies = make_app()
    notes = os.open(notes_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    declare(app, pings, copies, name, notes)
    worker = Worker(app, name=name)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()
    await app.close()


if __name__ == "__main__":
    logging.basicConfig(
        level=logging.INFO,
        format=f"%(asctime)s.%(msecs)03d {sys.argv[1]} %(levelname)s %(message)s",
    )
    logging.getLogger("rink").setLevel(logging.WARNING)
    asyncio.run(main(sys.argv[1], sys.argv[2]))
