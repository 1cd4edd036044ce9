"""Share a stream of large records, and its processor."""

import asyncio
import functools

from workers_support import until

from rink.streams import Record, Worker


class Scan(Record):
    n: int
    text: str


async def processed(app, count, seen, also=lambda: True, then=None):
    """Run a worker until `count` events were seen and `also` is true.

    `then` runs beside it.
    """
    worker = Worker(app)
    running = asyncio.create_task(worker.run())
    try:
        await until(
            lambda: (len(seen) >= count and also()) or running.done(), 40.0, f"{count} of {seen}"
        )
        if then:
            await then()
    finally:
        worker.stop()
        await running


def noting(servers, **settings):
    """Return an app, its stream, and the list that its processor notes."""
    app = servers.app("shop", **settings)
    scans = app.stream("scans", record=Scan, partition_by="n", partition_count=8)
    seen = []

    @app.processor(scans, initial_delay=0.1)
    async def note(events):
        async for scan in events.records():
            seen.append(scan.n)

    return app, scans, seen


def on_servers(test):
    """Run an async test on the `servers` that it is given."""

    @functools.wraps(test)
    def run(servers, **named):
        servers.run(test(servers, **named))

    return run
