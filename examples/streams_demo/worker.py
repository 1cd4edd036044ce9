"""One worker, as `rink worker streams_demo.app:app` runs it."""

import asyncio
import logging
import signal

from rink.streams import Worker
from streams_demo.app import app, here


async def main() -> None:
    worker = Worker(app, name=here.worker)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()
    await app.close()


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)-7s %(message)s")
    asyncio.run(main())
