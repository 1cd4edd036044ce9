"""Call into the event loop of asyncio from other threads, and wait in it."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial

from rink.engine.signals import Signal
from rink.event_loops import asyncio_loop


class _Bell:
    """Queue calls from other threads, and wake the loop once for many.

    A thread that wakes a loop gives up the interpreter. It gets it back only when the loop's thread
    sleeps, or after 5 ms. An engine that woke a busy loop once for each of 10,000 grants did
    nothing else for many seconds, and lost its session. So a loop that is awake checks the queue
    again in its next turn. It is woken only if its last check found nothing.

    Invariant: while a call is queued, a `_carry` is scheduled or about to be. `call` appends before
    it reads `is_awake`, and `_carry` clears `is_awake` before it reads the queue again. So at least
    one of them sees the call; if both do, there is one extra wake. There is no lock, because a
    finalizer or a signal handler may call in the middle of a call.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self.is_awake = False

    def call(self, callback: Callable[..., object], *args: object) -> None:
        """Schedule `callback` in the loop soon. Safe from any thread."""
        self._calls.append((callback, args))
        if self.is_awake:
            return
        self.is_awake = True
        try:
            self._loop.call_soon_threadsafe(self._carry)
        except RuntimeError:  # the loop was closed: nobody is waiting
            self._calls.clear()
            self.is_awake = False
        except BaseException:  # from a signal handler: the next call must wake the loop
            self.is_awake = False
            raise

    def _carry(self) -> None:
        try:
            if not self._calls:
                self.is_awake = False
                if not self._calls:
                    return
                self.is_awake = True
            self._loop.call_soon(self._carry)  # before the calls: one of them may be interrupted
            for _ in range(len(self._calls)):
                self._make(*self._calls.popleft())
        except BaseException:  # from a signal handler, as above
            self.is_awake = False
            raise

    def _make(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        try:
            callback(*args)
        except Exception as error:
            about = {"message": f"{callback!r} raised", "exception": error}
            self._loop.call_exception_handler(about)


_bells: weakref.WeakValueDictionary[int, _Bell] = weakref.WeakValueDictionary()
"""Map the id of a loop to its bell. A bell keeps its loop alive, so the id stays unique."""


def in_loop(callback: Callable[..., object]) -> Callable[..., None]:
    """Wrap `callback` for calls from any thread while this loop is open.

    Raises:
        UsageError: no event loop of asyncio runs here.
    """
    loop = asyncio_loop()
    bell = _bells.setdefault(id(loop), _Bell(loop))
    bell.is_awake = False  # a signal handler may have raised where nothing caught it
    return partial(bell.call, callback)


def soon_in_loop(callback: Callable[[], object]) -> Callable[[], None]:
    """Return a function like `in_loop`'s, for thousands of calls.

    The loop makes one call for all calls so far.
    """
    is_scheduled = False

    def carry() -> None:
        nonlocal is_scheduled
        is_scheduled = False  # first, so a call from now on schedules another one
        callback()

    wake = in_loop(carry)

    def call() -> None:
        nonlocal is_scheduled
        if not is_scheduled:
            is_scheduled = True
            wake()

    return call


async def wait_in_loop(signal: Signal, timeout: float | None = None) -> bool:
    """Wait for a signal without blocking the loop. Return whether it is set."""
    if signal.is_set():
        return True
    happened = asyncio.Event()
    wake = in_loop(happened.set)
    signal.then(wake)
    try:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await happened.wait()
        return signal.is_set()
    finally:
        signal.forget(wake)
