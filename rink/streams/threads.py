"""Processors that are plain functions: each call runs in a thread, its events come from the loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Generic, TypeVar

from rink.streams.event import Event
from rink.streams.events import Batches, Events, Outputs

R = TypeVar("R")
T = TypeVar("T")

_AT_ONCE = 64
"""Events that are fetched from the loop in one go; each hop there and back takes 0.1 ms."""


class BlockingEvents(Generic[R]):
    """As `Events`, for a processor that is a plain function: `for event in events`.

    An event is finished when the next one is asked for, here too.
    """

    def __init__(self, events: Events[R], loop: asyncio.AbstractEventLoop) -> None:
        self._events = events
        self._loop = loop
        self._fetched: deque[Event[R]] = deque()  # and not given to the function yet
        self._given = 0  # of those that came with them, how many were, since the last commit

    @property
    def partition(self) -> int:
        """Which partition."""
        return self._events.partition

    @property
    def token(self) -> int:
        """The fencing token: give it along with what is written elsewhere."""
        return self._events.token

    @property
    def is_lost(self) -> bool:
        """The partition has been lost: finish what you have, soon."""
        return self._events.is_lost

    def __iter__(self) -> Iterator[Event[R]]:
        while (event := self._next()) is not None:
            yield event

    def _next(self) -> Event[R] | None:
        if not self._fetched:
            self._given = 0  # all of them are finished by what follows
            self._fetched.extend(self.ask(self._events.fetch(_AT_ONCE)))
        if not self._fetched or self.is_lost:
            return None
        self._given += 1
        return self._fetched.popleft()

    def records(self) -> Iterator[R]:
        """Iterate over the records alone."""
        return (event.record for event in self)

    def take(self, count: int, within: float = 0.0) -> BlockingBatches[R]:
        """Iterate over lists of up to `count` events, as `Events.take`."""
        return BlockingBatches(self, self._events.take(count, within))

    def commit(self, outputs: Outputs = ()) -> None:
        """Commit all events that were given so far, as `Events.commit`."""
        self.ask(self._events.commit(outputs, self._given if self._fetched else None))
        self._given = 0

    def next_batch(self, batches: Batches[R]) -> list[Event[R]]:
        """Give the next list; what was fetched one by one and not given comes again in it."""
        if self._fetched:
            self.ask(self._events.hand_back(self._given))
            self._fetched.clear()
        self._given = 0
        return self.ask(batches.next())

    def ended(self, failed: bool) -> int | None:
        """How many events are finished now that the function has ended; None: all that were given."""
        if failed:
            return max(self._given - 1, 0)
        return self._given if self._fetched else None

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop that the events come from."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


class BlockingBatches(Generic[R]):
    """Lists of events; `.records()` gives lists of records."""

    def __init__(self, events: BlockingEvents[R], batches: Batches[R]) -> None:
        self._events = events
        self._batches = batches

    def __iter__(self) -> Iterator[list[Event[R]]]:
        while batch := self._events.next_batch(self._batches):
            yield batch

    def records(self) -> Iterator[list[R]]:
        """Iterate over lists of records."""
        return ([event.record for event in batch] for batch in self)


async def call_in_thread(
    function: Callable[[BlockingEvents[R]], object], events: Events[R], given_up: asyncio.Event
) -> int | None:
    """Call a processor in a thread of its own, and wait for its end.

    A thread cannot be cancelled. Whoever cancels this call waits on: the partition must not be
    processed twice in one process. Only where the group was left, `given_up`, is it left alone.

    Returns:
        How many of the events that were fetched for it are finished; None for all.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    blocking = BlockingEvents(events, loop)

    def run() -> None:
        error: BaseException | None = None
        try:
            function(blocking)
        except BaseException as raised:
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has been closed: the group was left
            loop.call_soon_threadsafe(_end, ended, error)

    threading.Thread(target=run, name=f"rink-partition-{events.partition}", daemon=True).start()
    await _uncancelled(ended, given_up)
    if ended.exception() is not None:
        events.finish(blocking.ended(failed=True))
    ended.result()
    return blocking.ended(failed=False)


async def _uncancelled(ended: asyncio.Future[None], given_up: asyncio.Event) -> None:
    """Wait for the end, however often cancelled; after that, for `given_up` too."""
    try:
        await asyncio.wait([ended])
    except asyncio.CancelledError:
        abandoned: asyncio.Future[Any] = asyncio.ensure_future(given_up.wait())
        waits: list[asyncio.Future[Any]] = [ended, abandoned]
        while not ended.done() and not abandoned.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        abandoned.cancel()
        if not ended.done():
            raise  # left alone; otherwise it has returned, if late


def _end(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    elif isinstance(error, StopIteration):  # a future cannot hold one
        told = RuntimeError("the processor raised StopIteration")
        told.__cause__ = error
        ended.set_exception(told)
    else:
        ended.set_exception(error)
