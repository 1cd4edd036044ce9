"""Sends the flights into the stream, at a steady pace, while the workers are at it."""

import argparse
import asyncio
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path

from streams_demo.app import app, here, legs
from streams_demo.here import GO
from streams_demo.legs import Leg, read_legs

TICK_S = 0.05
HELD_BACK = 0.1  # this share, or most of it, comes when the mishaps are over
NOTE_EVERY_S = 0.2


async def send(all_legs: list[Leg], seconds: float, may_end: Callable[[], bool]) -> None:
    """Send so that it takes about so many seconds, but not to the end before that may be."""
    rate = len(all_legs) / seconds
    ahead = iter(all_legs)
    sent, due, noted, last = 0, 0.0, 0.0, time.monotonic()
    async with app:
        while sent < len(all_legs):
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            is_held_back = sent > len(all_legs) * (1 - HELD_BACK) and not may_end()
            due += rate * (now - last) * (0.1 if is_held_back else 1)
            last = now
            # Not all in one call: it would send 4,096 at a time, and then nothing for a while.
            sent += await legs.send_many(islice(ahead, max(int(due) - sent, 0)))
            if now - noted > NOTE_EVERY_S or sent == len(all_legs):
                noted = now
                here.note("sent", count=sent)


def main() -> None:
    parser = argparse.ArgumentParser(description="sends the flights")
    parser.add_argument("--months", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    told = parser.parse_args()
    all_legs = list(read_legs(told.months))
    here.note("joined")
    asyncio.run(send(all_legs, told.seconds, (Path(here.folder) / GO).exists))
    here.note("leaving")


if __name__ == "__main__":
    main()
