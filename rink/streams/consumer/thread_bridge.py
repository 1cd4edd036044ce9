"""Run processors that are plain functions, each call in a thread.

Their events come from the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import attrs

from rink.callables import refuse_unrun
from rink.errors import ClosedError, UsageError
from rink.streams.consumer.delivery import Delivery
from rink.streams.consumer.user_thread import outlast_thread
from rink.streams.event import Event
from rink.streams.processor_events import Batches, Events, Outputs

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

_AT_ONCE = 64
"""Events that are fetched from the loop in one go; each hop there and back takes 0.1 ms."""


class BlockingEvents(Generic[R_co]):
    """The events of one partition for a plain function: `for event in events`.

    An event is finished when the next one is asked for, here too.
    """

    def __init__(self, delivery: Delivery[R_co], desk: Desk) -> None:
        self._delivery = delivery
        self._events = Events(delivery)
        self._desk = desk
        self._fetched: deque[Event[R_co]] = deque()  # and not given to the function yet
        self._given = 0  # of those that came with them, how many were, since the last commit
        self._thread = 0  # the one that iterates

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

    def __iter__(self) -> Iterator[Event[R_co]]:
        while (event := self._next()) is not None:
            yield event

    def _next(self) -> Event[R_co] | None:
        self._refuse_another_thread()
        if not self._fetched:
            self._given = 0  # the next call finishes all given events
            self._fetched.extend(self._desk.ask(self._delivery.fetch(_AT_ONCE)))
        if not self._fetched or self.is_lost:
            return None
        self._given += 1
        self._delivery.owner.stopwatch.start(1)
        return self._fetched.popleft()

    def records(self) -> Iterator[R_co]:
        """Iterate over the records alone."""
        return (event.record for event in self)

    def take(self, count: int, within: float = 0.0) -> BlockingBatches[R_co]:
        """Iterate over lists of up to `count` events, as `Events.take`."""
        return BlockingBatches(self, self._events.take(count, within))

    def commit(self, outputs: Outputs[R] = ()) -> None:
        """Commit all events that were given so far, as `Events.commit`."""
        self._desk.ask_aside(self._events.commit(outputs, self._given if self._fetched else None))
        self._given = 0

    def next_batch(self, batches: Batches[R_co]) -> list[Event[R_co]]:
        """Return the next list; fetched events that were not given come first."""
        self._refuse_another_thread()
        if self._fetched:
            self._desk.ask(self._delivery.hand_back(self._given))
            self._fetched.clear()
        self._given = 0
        return self._desk.ask(batches.next())

    def _refuse_another_thread(self) -> None:
        if threading.get_ident() != (self._thread or threading.get_ident()):
            raise UsageError(
                f"partition {self.partition}: another thread iterates over these events, and "
                "asking for an event finishes the one before: iterate in one thread, and share the "
                "events there"
            )
        self._thread = threading.get_ident()

    def ended(self, failed: bool) -> int | None:
        """Return how many events the function has finished; None for all."""
        if failed:
            return max(self._given - 1, 0)
        return self._given if self._fetched else None


class BlockingBatches(Generic[R_co]):
    """Lists of events; `.records()` gives lists of records."""

    def __init__(self, events: BlockingEvents[R_co], batches: Batches[R_co]) -> None:
        self._events = events
        self._batches = batches

    def __iter__(self) -> Iterator[list[Event[R_co]]]:
        while batch := self._events.next_batch(self._batches):
            yield batch

    def records(self) -> Iterator[list[R_co]]:
        """Iterate over lists of records."""
        return ([event.record for event in batch] for batch in self)


_ASYNC = "write it with `async def` and await that, in a decorator's wrapper as well"


async def call_in_thread(
    function: Callable[[BlockingEvents[R]], object],
    delivery: Delivery[R],
    given_up: asyncio.Event,
) -> int | None:
    """Call a processor in a thread of its own, and wait for its end.

    A thread cannot be cancelled. Whoever cancels this call waits on: the partition must not be
    processed twice in one process. Only where the group was left, `given_up`, is it left alone.

    Returns:
        How many of the events that were fetched for it are finished; None for all.
    """
    desk = Desk()
    blocking = BlockingEvents(delivery, desk)
    context = contextvars.copy_context()

    def run() -> None:
        error: BaseException | None = None
        try:
            refuse_unrun("the processor", context.run(function, blocking), _ASYNC)
        except (SystemExit, KeyboardInterrupt) as raised:  # end a thread, and nothing else
            error = RuntimeError(f"the processor raised {raised!r}")
            error.__cause__ = raised
        except BaseException as raised:
            error = raised
        desk.end(error)

    async def serve() -> BaseException | None:
        error = await desk.serve()
        if error is not None:
            delivery.finish(blocking.ended(failed=True))
        await delivery.end(error)
        return error

    threading.Thread(
        target=run, name=f"rink-partition-{delivery.owner.place.number}", daemon=True
    ).start()
    serving = asyncio.create_task(serve())
    try:
        error = await outlast_thread(serving, given_up)
    finally:
        if not serving.done():  # it is left alone
            desk.abandon()
            serving.cancel()
    if error is not None:
        raise error
    return blocking.ended(failed=False)


class Desk:
    """Does in one task of the loop what a thread asks for.

    So middleware is left in the task that entered it, as `asyncio.timeout` wants it, and the thread
    sees the context variables that middleware sets.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: asyncio.Queue[_Request | _End] = asyncio.Queue()
        self._is_closed = self._is_abandoned = False
        self._first_set: dict[contextvars.ContextVar[Any], contextvars.Token[Any]] = {}

    def ask(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from the thread, and wait for its end."""
        request = _Request(coroutine, Future())
        try:
            self._loop.call_soon_threadsafe(self._put, request)
        except RuntimeError:  # the loop was closed: the group was left long ago
            coroutine.close()
            raise
        answer, changes = request.answer.result()
        self._apply(changes)
        return answer  # type: ignore[no-any-return]

    def ask_aside(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine from the thread beside the requests made before."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _apply(self, changes: _Changes) -> None:
        for variable, value in changes.items():
            if value is not _UNSET:
                token = variable.set(value)
                self._first_set.setdefault(variable, token)
            elif variable in self._first_set:
                variable.reset(self._first_set.pop(variable))

    def end(self, error: BaseException | None) -> None:
        """The thread has come to its end: called in it."""
        with contextlib.suppress(RuntimeError):  # the loop has been closed: the group was left
            self._loop.call_soon_threadsafe(self._put, _End(error))

    def _put(self, item: _Request | _End) -> None:
        self._asked.put_nowait(item)
        if self._is_closed:
            self._refuse_all()

    def _refuse_all(self) -> None:
        self._is_closed = True
        while not self._asked.empty():
            item = self._asked.get_nowait()
            if isinstance(item, _Request):
                item.coroutine.close()
                item.answer.set_exception(ClosedError("this call of the processor is over"))

    def abandon(self) -> None:
        """Nobody waits for the thread any more: a cancellation ends the service."""
        self._is_abandoned = True

    async def serve(self) -> BaseException | None:
        """Do what is asked for until the thread ends; returns what it ended with."""
        try:
            while isinstance(item := await self._next(), _Request):
                before = contextvars.copy_context()
                try:
                    answer = await item.coroutine
                except BaseException as error:
                    item.answer.set_exception(error)
                    if self._is_abandoned:
                        raise
                else:
                    item.answer.set_result((answer, _changes(before)))
            return item.error
        finally:
            self._refuse_all()

    async def _next(self) -> _Request | _End:
        while True:
            try:
                return await self._asked.get()
            except asyncio.CancelledError:
                # Of a time limit in middleware: a thread cannot be ended by it.
                if self._is_abandoned:
                    raise


_UNSET = object()

_Changes = dict[contextvars.ContextVar[Any], Any]
"""Context variables and their new values, `_UNSET` for none."""


def _changes(before: contextvars.Context) -> _Changes:
    """Return what differs now from before."""
    now = contextvars.copy_context()
    changed = {var: value for var, value in now.items() if before.get(var, _UNSET) is not value}
    return changed | {var: _UNSET for var in before if var not in now}


@attrs.frozen(eq=False)
class _Request:
    coroutine: Coroutine[Any, Any, Any]
    answer: Future[tuple[Any, _Changes]]


@attrs.frozen(eq=False)
class _End:
    error: BaseException | None
