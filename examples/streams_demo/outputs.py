"""Read streams back, for the next owner of a partition and for the checks."""

import time
from collections.abc import AsyncIterator
from typing import TypeVar

from rink.streams import Event, Stream
from streams_demo.checks import Step
from streams_demo.legs import State

R = TypeVar("R")


async def entries(stream: Stream[R], partition: int, since: str = "") -> AsyncIterator[Event[R]]:
    """Yield a partition's events, from the millisecond before `since` on."""
    after = f"{int(since.partition('-')[0]) - 1}-0" if since else "0-0"
    async for event in stream.read(partition, after=after):
        yield event


async def all_steps(states: Stream[State]) -> list[Step]:
    """Return every state that was sent, partition by partition."""
    # Ids have the time of day, and notes the monotonic time. Both are this machine's.
    offset = time.time() - time.monotonic()
    async with states.app:
        return [
            Step(
                partition,
                event.sent_at - offset,
                event.record.worker,
                event.record.token,
                event.record.key,
                event.record.aircraft,
            )
            for partition in range(states.partition_count)
            async for event in entries(states, partition)
        ]
