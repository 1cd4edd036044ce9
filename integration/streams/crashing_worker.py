"""Run a worker whose processor crashes at one record.

It crashes by `os._exit` amid the record, or by `sys.exit`.
"""

import asyncio
import os
import signal
import sys
import time

from rink.streams import App, Record, Worker


class Ping(Record):
    who: str
    n: int
    crashes: bool = False


def make_app(partitions=64):
    app = App(
        "crashes",
        redis=os.environ["CRASHES_REDIS"],
        etcd=os.environ["CRASHES_ETCD"],
        ttl=3,
        session={"prefix": os.environ["CRASHES_PREFIX"]},
    )
    pings = app.stream("pings", record=Ping, partition_by="who", partition_count=partitions)
    return app, pings


async def main(notes_path):
    app, pings = make_app()
    notes = os.open(notes_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    @app.processor(pings, initial_delay=0.5, rebalance_delay=1.0, grace=2.0)
    async def note(events):
        async for batch in events.take(20).records():
            for ping in batch:
                if ping.crashes:
                    end = sys.exit if os.environ.get("CRASHES_BY") == "exit" else os._exit
                    end(9)
                os.write(
                    notes, f"{time.monotonic()} {events.partition} {ping.who} {ping.n}\n".encode()
                )
                await asyncio.sleep(0.0005)

    worker = Worker(app)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()
    await app.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
