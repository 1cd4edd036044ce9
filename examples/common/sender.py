"""Send flights into a stream at a steady pace, in a process of its own."""

import argparse
import asyncio
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from common.here import Here, end_with_the_demo
from rink.streams import Stream

TICK_S = 0.05
NOTE_INTERVAL_S = 0.2

Advance = Callable[[float, float, float], float]
"""Return how many records are due, from the last number, the next step and the limit."""


async def send(
    stream: Stream[Any], records: list[Any], seconds: float, here: Here, advance: Advance
) -> None:
    """Send all records, which takes about `seconds` without a limit."""
    rest = iter(records)
    sent, due, noted, last = 0, 0.0, 0.0, time.monotonic()
    async with stream.app:
        while sent < len(records):
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            step = len(records) * (now - last) / seconds
            due, last = advance(due, step, here.limit * len(records)), now
            # Not all in one call: it would send 4,096 at a time, and then nothing for a while.
            sent += await stream.send_many(islice(rest, max(int(due) - sent, 0)))
            if now - noted > NOTE_INTERVAL_S or sent == len(records):
                noted = now
                here.note("sent", count=sent)


def main(
    here: Here, stream: Stream[Any], read: Callable[[int], Iterable[Any]], advance: Advance
) -> None:
    """Run the sender of a demo, whose options are `Stage.start_sender`'s."""
    parser = argparse.ArgumentParser(description="sends the flights")
    parser.add_argument("--months", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args()
    end_with_the_demo()
    records = list(read(options.months))
    here.note("joined")
    asyncio.run(send(stream, records, options.seconds, here, advance))
    here.note("leaving")
