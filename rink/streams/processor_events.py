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
    """The events of one partition, in order: `async for event in events`.

    Asking for the next event marks the current one as finished. Finished events are committed soon
    after. The iteration ends when the partition goes to another worker. Return soon then: `grace`
    says how soon.
    """

    def __init__(self, delivery: Delivery[R_co]) -> None:
        self._delivery = delivery
        self._owner = delivery.owner

    @property
    def partition(self) -> int:
        """Which partition."""
        return self._owner.place.number

    @property
    def token(self) -> int:
        """The fencing token: give it along with what is written elsewhere."""
        return self._owner.token

    @property
    def is_lost(self) -> bool:
        """Whether the partition has been lost: finish the current events soon."""
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
            count: at most; no more than the processor's `max_uncommitted`.
            within: how many seconds to wait for that many, from the first one on; 0 takes what is
                there.
        """
        return Batches(self._delivery, self._check(count), check_seconds("within", within))

    async def commit(self, outputs: Outputs[R] = (), count: int | None = None) -> None:
        """Commit all events given so far, in one step with outputs.

        Either all of it happens or nothing, so outputs are sent exactly once for these events.

        Args:
            outputs: pairs of a stream (of the same Redis) and a record. Where they are for several
                streams, make each with `stream.output(record)`, so that type checkers compare each
                record with its stream.
            count: only of the first so many of the events given and not committed; None: of all.

        Raises:
            StaleToken: the partition belongs to another worker by now; nothing was written.
            RecordError: an output does not match its stream; nothing was written.
            OffsetMoved, RedisRolledBack: an operator moved the offset, or Redis has older data. Do
                not catch it.
            CrossSlot: on a Redis Cluster, where this is not possible over several slots.
            StateError: an output's stream has another number of partitions, or something else lies
                there.
            ConfigError: the count is no whole number of 0 or more; nothing was written.
            UsageError: there are outputs, and no event was given since the last commit; or there
                are more for one partition than it holds.
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
    """Lists of events; `.records()` gives lists of records."""

    def __init__(self, delivery: Delivery[R_co], count: int, within: float) -> None:
        self._delivery = delivery
        self._count = count
        self._within = within

    async def next(self) -> list[Event[R_co]]:
        """Give the next list; [] at the end."""
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
