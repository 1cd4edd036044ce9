"""Reads the stream `states` back: for the next owner of a partition, and for the checks."""

import time
from collections.abc import AsyncIterator

from rink.streams import Event, Stream
from streams_demo.checks import Step
from streams_demo.legs import Aircraft, State

PAGE = 1000


async def newest(states: Stream[State], partition: int) -> dict[str, Aircraft]:
    """Each aircraft's newest state.

    Called by an owner: from its grant on nobody else can add to the partition, so what is read is
    what belongs to the offset.
    """
    return {event.record.key: event.record.aircraft async for event in each(states, partition)}


async def each(states: Stream[State], partition: int) -> AsyncIterator[Event[State]]:
    """All that lies in a partition, in order."""
    redis = (await states.app.opened()).store.redis
    key = states.names.partition(partition).stream
    after = "-"
    while page := await redis.xrange(key, after, count=PAGE):
        for entry_id, fields in page:
            yield Event(entry_id.decode(), states.codec.decode(fields[b"d"]))
        after = b"(" + page[-1][0]


async def all_steps(states: Stream[State]) -> list[Step]:
    """Every state that was sent, partition by partition."""
    # An entry's id tells the time of day, notes the monotonic time; both are this machine's.
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
            async for event in each(states, partition)
        ]
