"""Sends the flights into the stream, at a steady pace, while the workers are at it."""

import argparse
import asyncio
import time
from itertools import islice

from streams_demo.app import app, here, legs
from streams_demo.legs import Leg, read_legs

TICK_S = 0.05
SLOWLY = 0.1  # of the pace, where the mishaps are behind: each shall meet a stream that flows
NOTE_EVERY_S = 0.2


async def send(all_legs: list[Leg], seconds: float) -> None:
    """Send so that it takes about so many seconds."""
    rate = len(all_legs) / seconds
    ahead = iter(all_legs)
    sent, due, noted, last = 0, 0.0, 0.0, time.monotonic()
    async with app:
        while sent < len(all_legs):
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            due += pace(sent / len(all_legs)) * rate * (now - last)
            last = now
            # Not all in one call: it would send 4,096 at a time, and then nothing for a while.
            sent += await legs.send_many(islice(ahead, max(int(due) - sent, 0)))
            if now - noted > NOTE_EVERY_S or sent == len(all_legs):
                noted = now
                here.note("sent", count=sent)


def pace(share: float) -> float:
    limit = here.limit
    if share < limit:
        return 1.0
    return SLOWLY if limit else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description="sends the flights")
    parser.add_argument("--months", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    told = parser.parse_args()
    all_legs = list(read_legs(told.months))
    here.note("joined")
    asyncio.run(send(all_legs, told.seconds))
    here.note("leaving")


if __name__ == "__main__":
    main()
