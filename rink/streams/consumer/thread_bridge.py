"""Run plain functions as processors: each call has a thread.

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
from functools import partial
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
"""The most events that one request fetches from the loop; each request takes 0.1 ms."""


class BlockingEvents(Generic[R_co]):
    """Iterate over one partition in a plain function: `for event in events`.

    As in `Events`, asking for the next event marks the current one as done.
    """

    def __init__(self, delivery: Delivery[R_co], desk: Desk) -> None:
        self._delivery = delivery
        self._events = Events(delivery)
        self._desk = desk
        self._fetched: deque[Event[R_co]] = deque()  # events that the function has not got yet
        self._given = 0  # events of the last fetch that the function has got since the last commit
        self._thread = 0  # the iterating thread's id

    @property
    def partition(self) -> int:
        """Return the partition's number."""
        return self._events.partition

    @property
    def token(self) -> int:
        """Return the fencing token, for writes to other stores."""
        return self._events.token

    @property
    def is_lost(self) -> bool:
        """Return whether the partition was lost. If so, finish the current events."""
        return self._events.is_lost

    def __iter__(self) -> Iterator[Event[R_co]]:
        while (event := self._next()) is not None:
            yield event

    def _next(self) -> Event[R_co] | None:
        self._refuse_another_thread()
        if not self._fetched:
            self._given = 0  # the fetch marks all events that the function has got as done
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
        """Iterate over lists of up to `count` events, like `Events.take`."""
        return BlockingBatches(partial(self._next_batch, self._events.take(count, within)))

    def commit(self, outputs: Outputs[R] = ()) -> None:
        """Commit all events that the function has got, like `Events.commit`."""
        self._desk.ask_aside(self._events.commit(outputs, self._given if self._fetched else None))
        self._given = 0

    def _next_batch(self, batches: Batches[R_co]) -> list[Event[R_co]]:
        """Return the next list; events that the function has not got come first."""
        self._refuse_another_thread()
        if self._fetched:
            self._desk.ask(self._delivery.hand_back(self._given))
            self._fetched.clear()
        self._given = 0
        return self._desk.ask(batches.next())

    def _refuse_another_thread(self) -> None:
        if threading.get_ident() != (self._thread or threading.get_ident()):
            raise UsageError(
                f"partition {self.partition}: another thread iterates over these events. "
                "Asking for an event marks the previous event as done, so iterate in one thread "
                "only, and hand the events out from there"
            )
        self._thread = threading.get_ident()

    def _ended(self, failed: bool) -> int | None:
        """Return how many of the fetched events are done; None for all."""
        if failed:
            return max(self._given - 1, 0)
        return self._given if self._fetched else None


class BlockingBatches(Generic[R_co]):
    """Iterate over lists of events; `.records()` gives lists of records."""

    def __init__(self, next_batch: Callable[[], list[Event[R_co]]]) -> None:
        self._next_batch = next_batch

    def __iter__(self) -> Iterator[list[Event[R_co]]]:
        while batch := self._next_batch():
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

    A thread cannot be cancelled. A cancelled call still waits for the thread, because a partition
    must not be processed twice in one process. It stops waiting when `given_up` is set, after the
    group was left.

    Returns:
        How many of the fetched events are done; None for all.
    """
    desk = Desk()
    blocking = BlockingEvents(delivery, desk)
    context = contextvars.copy_context()

    def run() -> None:
        error: BaseException | None = None
        try:
            refuse_unrun("the processor", context.run(function, blocking), _ASYNC)
        except (SystemExit, KeyboardInterrupt) as raised:  # they end only the thread
            error = RuntimeError(f"the processor raised {raised!r}")
            error.__cause__ = raised
        except BaseException as raised:
            error = raised
        desk.end(error)

    async def serve() -> BaseException | None:
        error = await desk.serve()
        if error is not None:
            delivery.finish(blocking._ended(failed=True))  # noqa: SLF001 - of this package
        await delivery.end(error)
        return error

    threading.Thread(
        target=run, name=f"rink-partition-{delivery.owner.place.number}", daemon=True
    ).start()
    serving = asyncio.create_task(serve())
    try:
        error = await outlast_thread(serving, given_up)
    finally:
        if not serving.done():  # the thread was given up
            desk.abandon()
            serving.cancel()
    if error is not None:
        raise error
    return blocking._ended(failed=False)  # noqa: SLF001 - of this package


class Desk:
    """Run the requests of a thread in one task of the loop.

    So the task that entered middleware also leaves it, which `asyncio.timeout` needs. The thread
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
        except RuntimeError:  # the loop was closed, long after the group was left
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
        """Report the end of the thread; call this in the thread."""
        with contextlib.suppress(RuntimeError):  # the loop was closed, after the group was left
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
        """Let a cancellation end the service."""
        self._is_abandoned = True

    async def serve(self) -> BaseException | None:
        """Run requests until the thread ends; return its error, or None."""
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
                # A time limit in middleware cannot end a thread.
                if self._is_abandoned:
                    raise


_UNSET = object()

_Changes = dict[contextvars.ContextVar[Any], Any]
"""Context variables and their new values, `_UNSET` for none."""


def _changes(before: contextvars.Context) -> _Changes:
    """Return the context variables that differ from before."""
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
