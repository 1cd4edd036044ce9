"""Send or process large records, and report the memory used.

    large_process.py send|process REDIS ETCD PREFIX COUNT SIZE

All settings are the defaults except the times of joining.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from rink.streams import App, Record, Worker

MEGABYTE = 2**20


class Scan(Record):
    n: int
    text: str


def declared(redis, etcd, prefix):
    app = App("shop", redis=redis, etcd=etcd, ttl=5, session={"prefix": prefix})
    scans = app.stream("scans", record=Scan, partition_by="n", partition_count=4)
    return app, scans


async def send(app, scans, count, size):
    """Send records one after the other, as a loader does that reads files."""
    filler = "x" * size
    async with app:
        return await scans.send_many(Scan(n=n, text=filler) for n in range(count))


async def process(app, scans, count, size):
    seen, done = [], asyncio.Event()

    @app.processor(scans, initial_delay=0.1)
    async def note(events):
        async for scan in events.records():
            assert len(scan.text) == size
            seen.append(scan.n)
            if len(seen) >= count:
                done.set()

    worker = Worker(app)
    async with asyncio.TaskGroup() as group:
        group.create_task(worker.run())
        await done.wait()
        worker.stop()
    await app.close()
    assert sorted(seen) == list(range(count)), "each once"
    return len(seen)


def peak():
    """Return the most memory that this process has had, in bytes.

    ru_maxrss would count the process that started this one, too.
    """
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


def main():
    what, redis, etcd, prefix, count, size = sys.argv[1:]
    app, scans = declared(redis, etcd, prefix)
    before = peak()
    began = time.monotonic()
    work = {"send": send, "process": process}[what]
    done = asyncio.run(work(app, scans, int(count), int(size)))
    took = time.monotonic() - began
    print(json.dumps({"done": done, "seconds": took, "grown": peak() - before}))


if __name__ == "__main__":
    main()
