"""Give a processor the events of one partition while its worker owns it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Generic, TypeVar

from rink.arguments import check_count, check_seconds
from rink.errors import ConfigError
from rink.streams.consumer.delivery import Delivery
from rink.streams.event import Event
from rink.streams.stream import Stream

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Outputs = Iterable[tuple[Stream[R], R]]
"""Records to write with a commit, as pairs for one stream or as `Stream.output` makes them."""


class Events(Generic[R_co]):
    """Iterate over one partition in order: `async for event in events`.

    Asking for the next event marks the current one as done. Done events are committed in batches
    shortly afterwards. The iteration ends when the partition goes to another worker. Then the
    function must return: `grace` says how soon.
    """

    def __init__(self, delivery: Delivery[R_co]) -> None:
        self._delivery = delivery
        self._owner = delivery.owner

    @property
    def partition(self) -> int:
        """Return the partition's number."""
        return self._owner.place.number

    @property
    def token(self) -> int:
        """Return the fencing token, for writes to other stores."""
        return self._owner.token

    @property
    def is_lost(self) -> bool:
        """Return whether the partition was lost. If so, finish the current events."""
        return self._owner.is_lost

    async def __aiter__(self) -> AsyncIterator[Event[R_co]]:
        delivery = self._delivery
        iteration = delivery.begin(object())
        while batch := await delivery.next(iteration, 1):
            for event in batch:
                yield event
            while (present := delivery.next_now(iteration)) is not None:
                yield Event(present[0].id, present[1])

    async def records(self) -> AsyncIterator[R_co]:
        """Iterate over the records alone."""
        delivery = self._delivery
        iteration = delivery.begin(object())
        while batch := await delivery.next(iteration, 1):
            for event in batch:
                yield event.record
            while (present := delivery.next_now(iteration)) is not None:
                yield present[1]

    def take(self, count: int, within: float = 0.0) -> Batches[R_co]:
        """Iterate over lists of up to `count` events.

        Write `async for batch in events.take(100)`.

        Args:
            count: the largest size of a list, at most the processor's `max_uncommitted`.
            within: seconds to wait for more events after the first one; 0 takes the events that are
                there.
        """
        return Batches(self._delivery, self._check(count), check_seconds("within", within))

    async def commit(self, outputs: Outputs[R] = (), count: int | None = None) -> None:
        """Commit all in-flight events, in one step with outputs.

        Redis does all of it or nothing, so outputs are sent exactly once for these events.

        Args:
            outputs: pairs of a stream (of the same Redis) and a record. For several streams, make
                each pair with `stream.output(record)`. Then type checkers compare each record with
                its stream.
            count: how many of the in-flight events to commit, from the first one; None commits all.

        Raises:
            StaleToken: the partition belongs to another worker now; nothing was written.
            RecordError: an output does not match its stream; nothing was written.
            OffsetMoved, RedisRolledBack: an operator moved the offset, or Redis has older data. Do
                not catch it.
            CrossSlot: a Redis Cluster cannot do this over several slots.
            StateError: an output's stream has another number of partitions, or its key holds other
                data.
            ConfigError: the count is no whole number of 0 or more; nothing was written.
            UsageError: there are outputs but no event to commit with them, or more outputs for one
                partition than it holds.
        """
        if count is not None:
            check_count("count", count, least=0)
        await self._owner.commit(outputs, count)

    def _check(self, count: int) -> int:
        most = self._owner.processor.max_uncommitted
        if check_count("count", count) > most:
            raise ConfigError(
                f"take({count}) must be 1 to max_uncommitted={most} events: to take more at once, "
                "give the processor a larger max_uncommitted"
            )
        return count


class Batches(Generic[R_co]):
    """Iterate over lists of events; `.records()` gives lists of records."""

    def __init__(self, delivery: Delivery[R_co], count: int, within: float) -> None:
        self._delivery = delivery
        self._count = count
        self._within = within

    async def next(self) -> list[Event[R_co]]:
        """Return the next list; [] at the end."""
        delivery = self._delivery
        return await delivery.next(delivery.begin(self), self._count, self._within)

    async def __aiter__(self) -> AsyncIterator[list[Event[R_co]]]:
        iteration = self._delivery.begin(object())
        while batch := await self._delivery.next(iteration, self._count, self._within):
            yield batch

    async def records(self) -> AsyncIterator[list[R_co]]:
        """Iterate over lists of records."""
        async for batch in self:
            yield [event.record for event in batch]
