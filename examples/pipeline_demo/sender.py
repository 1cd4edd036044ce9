"""Sends the flights into the stream, at a steady pace, up to the share that may flow by now."""

import argparse
import asyncio
import time
from itertools import islice

from streams_demo.here import end_with_the_demo

from pipeline_demo.flights import Flight, app, flights, read_flights
from pipeline_demo.here import Here

TICK_S = 0.05
NOTE_EVERY_S = 0.2


async def send(here: Here, all_flights: list[Flight], seconds: float) -> None:
    ahead = iter(all_flights)
    sent, due, noted, last = 0, 0.0, 0.0, time.monotonic()
    async with app:
        while sent < len(all_flights):
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            due += len(all_flights) * (now - last) / seconds
            due, last = min(due, here.limit * len(all_flights)), now
            sent += await flights.send_many(islice(ahead, max(int(due) - sent, 0)))
            if now - noted > NOTE_EVERY_S or sent == len(all_flights):
                noted = now
                here.note("sent", count=sent)


def main() -> None:
    parser = argparse.ArgumentParser(description="sends the flights")
    parser.add_argument("--months", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    told = parser.parse_args()
    here = Here.read()
    end_with_the_demo()
    all_flights = list(read_flights(told.months))
    here.note("joined")
    asyncio.run(send(here, all_flights, told.seconds))
    here.note("leaving")


if __name__ == "__main__":
    main()
