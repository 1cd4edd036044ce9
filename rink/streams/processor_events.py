"""What a processor is given: the events of one partition, for as long as it is this worker's."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Generic, Protocol, TypeVar

from rink.arguments import check_count, check_seconds
from rink.errors import ConfigError, UsageError
from rink.streams.consumer.buffer import Entry
from rink.streams.event import Event
from rink.streams.stream import Stream

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Outputs = Iterable[tuple[Stream[R], R]]
"""Records to write with a commit, as pairs for one stream or as `Stream.output` makes them."""

Middleware = Callable[[list[Event[R]]], AbstractAsyncContextManager[object]]
"""Goes around each batch that a processor is given: entered before it, left when it is finished, with
the exception where it failed. What it yields, if that is a list, is given in the batch's place."""


class Source(Protocol[R]):
    """Where events come from: a partition's run, or the test kit."""

    @property
    def partition(self) -> int:
        """Which partition."""

    @property
    def token(self) -> int:
        """The fencing token."""

    @property
    def max_uncommitted(self) -> int:
        """Return how many events may be given and not committed."""

    @property
    def commits_by_hand(self) -> bool:
        """Only `commit` finishes events."""

    @property
    def middleware(self) -> tuple[Middleware[Any], ...]:
        """Return the middleware that goes around each batch."""

    @property
    def is_lost(self) -> bool:
        """The partition is not this worker's any more."""

    def finish(self, count: int | None = None) -> None:
        """Mark the given events as processed: all, or the first `count`."""

    def hand_back(self) -> None:
        """Give back the unfinished events, to come again."""

    def begin_event(self) -> None:
        """Measure one of the events that were given together, from now on.

        It may be called in a thread.
        """

    def next_now(self) -> tuple[Entry, R] | None:
        """As `next(1, 0)` where nothing need be waited for; None where something may have to be."""

    async def next(self, count: int, within: float) -> list[tuple[Entry, R]]:
        """What was given before has been processed; give up to `count` more, [] where there are none."""

    async def commit(
        self, outputs: Iterable[tuple[Stream[Any], Any]], count: int | None = None
    ) -> None:
        """Commit all that was given, or its first `count`; outputs with it."""


class Events(Generic[R_co]):
    """The events of one partition, in order: `async for event in events`.

    An event is finished when the next one is asked for, and committed soon after. The iteration
    ends when the partition goes to another worker: return then, soon: see `grace`.
    """

    def __init__(self, source: Source[R_co]) -> None:
        self._source = source
        self._around: AsyncExitStack | None = None
        self._iteration: object = None  # the one that goes on: whoever began last
        # What middleware raised last, unless the function has gone on since.
        self._failure: Exception | None = None

    @property
    def partition(self) -> int:
        """Which partition."""
        return self._source.partition

    @property
    def token(self) -> int:
        """The fencing token: give it along with what is written elsewhere."""
        return self._source.token

    @property
    def is_lost(self) -> bool:
        """The partition has been lost: finish what you have, soon."""
        return self._source.is_lost

    async def __aiter__(self) -> AsyncIterator[Event[R_co]]:
        mine = self.begin(object())
        while batch := await self.next(mine, 1):
            for event in batch:
                yield event
            while self._iteration is mine and (given := self._source.next_now()) is not None:
                yield Event(given[0].id, given[1])

    async def records(self) -> AsyncIterator[R_co]:
        """Iterate over the records alone."""
        mine = self.begin(object())
        while batch := await self.next(mine, 1):
            for event in batch:
                yield event.record
            while self._iteration is mine and (given := self._source.next_now()) is not None:
                yield given[1]

    def take(self, count: int, within: float = 0.0) -> Batches[R_co]:
        """Iterate over lists of up to `count` events: `async for batch in events.take(100)`.

        Args:
            count: at most; no more than the processor's `max_uncommitted`.
            within: how many seconds to wait for that many, from the first one on; 0 takes what is there.
        """
        return Batches(self, self._check(count), check_seconds("within", within))

    async def commit(self, outputs: Outputs[R] = (), count: int | None = None) -> None:
        """Commit all events that were given so far, in one step with outputs to other streams.

        Either all of it happens or nothing, so outputs are sent exactly once for these events.

        Args:
            outputs: pairs of a stream (of the same Redis) and a record. Where they are for several streams, make each
                with `stream.output(record)`, so that type checkers compare each record with its stream.
            count: only of the first so many of the events given and not committed; None: of all.

        Raises:
            StaleToken: the partition belongs to another worker by now; nothing was written.
            RecordError: an output does not match its stream; nothing was written.
            OffsetMoved, RedisRolledBack: an operator moved the offset, or Redis has older data. Do not catch it.
            CrossSlot: on a Redis Cluster, where this is not possible over several slots.
            StateError: an output's stream has another number of partitions, or something else lies there.
            ConfigError: the count is no whole number of 0 or more; nothing was written.
            UsageError: there are outputs, and no event was given since the last commit; or there are more for one
                partition than it holds.
        """
        if count is not None:
            check_count("count", count, least=0)
        await self._source.commit(outputs, count)

    async def fetch(self, count: int) -> list[Event[R_co]]:
        """Give up to `count` events at once to who gives them on one by one: see `threads.py`."""
        one_by_one = self._source.commits_by_hand or self._source.middleware
        return await self.next(self.begin(self), 1 if one_by_one else count)

    def begin_event(self) -> None:
        """Begin the `timeout` of one of the fetched events."""
        self._source.begin_event()

    async def hand_back(self, finished: int) -> None:
        """Of what was given, the first so many are processed, and the others come again."""
        self.finish(finished)
        self._source.hand_back()

    def finish(self, count: int | None) -> None:
        """What was given is processed: all of it, or its first `count`; not where it is committed by hand."""
        if not self._source.commits_by_hand:
            self._source.finish(count)

    def _check(self, count: int) -> int:
        if check_count("count", count) > self._source.max_uncommitted:
            raise ConfigError(
                f"take({count}) must be 1 to max_uncommitted={self._source.max_uncommitted} events: to take more at once, give "
                "the processor a larger max_uncommitted"
            )
        return count

    def begin(self, iteration: object) -> object:
        """An iteration begins, and any other has come to its end."""
        self._iteration = iteration
        return iteration

    async def next(self, iteration: object, count: int, within: float = 0.0) -> list[Event[R_co]]:
        """Give one iteration its next events; [] at the end.

        Raises:
            UsageError: another one has begun since.
        """
        if iteration is not self._iteration:
            raise UsageError(
                f"partition {self.partition}: another iteration over these events has begun, and asking for an "
                "event finishes the one before: iterate in one place, and share the events there"
            )
        if self._failure is not None:  # the function has caught it: the batch comes again
            self._failure = None
            self._source.hand_back()
        await self._leave_middleware()
        while given := await self._source.next(count, within):
            batch = [Event(entry.id, record) for entry, record in given]
            if self._source.middleware:
                batch = await self._surround(batch)
            if batch:
                return batch
            await self._leave_middleware()  # which has left nothing of it: the next one
        return []

    @contextlib.contextmanager
    def _noting_failure(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._failure = error
            raise

    def raise_failure(self) -> None:
        """Raise what middleware raised last: whatever the function made of it, the batch is not finished."""
        if self._failure is not None:
            raise self._failure

    async def _leave_middleware(self) -> None:
        if self._around is not None:
            around, self._around = self._around, None
            with self._noting_failure():
                await around.aclose()

    async def _surround(self, batch: list[Event[R_co]]) -> list[Event[R_co]]:
        self._around = AsyncExitStack()
        for middleware in self._source.middleware:
            with self._noting_failure():
                changed = await self._around.enter_async_context(middleware(batch))
            if isinstance(changed, list):
                batch = changed
        return batch

    async def end(self, error: BaseException | None) -> None:
        """The processor has returned, or raised: leave the middleware of the last batch."""
        if self._around is not None:
            around, self._around = self._around, None
            if error is None:
                await around.aclose()
            else:  # what the middleware makes of it changes nothing: the policy decides
                with contextlib.suppress(Exception):
                    await around.__aexit__(type(error), error, error.__traceback__)


class Batches(Generic[R_co]):
    """Lists of events; `.records()` gives lists of records."""

    def __init__(self, events: Events[R_co], count: int, within: float) -> None:
        self._events = events
        self._count = count
        self._within = within

    async def next(self) -> list[Event[R_co]]:
        """Give the next list; [] at the end."""
        return await self._events.next(self._events.begin(self), self._count, self._within)

    async def __aiter__(self) -> AsyncIterator[list[Event[R_co]]]:
        mine = self._events.begin(object())
        while batch := await self._events.next(mine, self._count, self._within):
            yield batch

    async def records(self) -> AsyncIterator[list[R_co]]:
        """Iterate over lists of records."""
        async for batch in self:
            yield [event.record for event in batch]
