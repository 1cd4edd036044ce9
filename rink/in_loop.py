"""Calls from the engine's threads into the event loop of asyncio, and waits of that loop."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections import deque
from collections.abc import Callable
from functools import partial

from rink.engine.signals import Signal
from rink.loops import asyncio_loop


class _Bell:
    """What threads want called in one loop.

    A thread that wakes a loop lets go of the interpreter, and has it again only when the loop's
    thread sleeps, or 5 ms later. So an engine that told a busy loop of 10,000 grants, with a wake
    for each, came to nothing else for many seconds, its lease included. Here a loop that is awake
    looks again after its next turn, and is woken only when it has found nothing.

    Without a lock, as a finalizer or a signal handler may call: in a race there is one wake more.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._is_awake = False

    def call(self, callback: Callable[..., object], *args: object) -> None:
        """Have this called soon; from any thread."""
        self._calls.append((callback, args))  # first: a loop that falls asleep looks once more
        if not self._is_awake:
            self._is_awake = True
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody is waiting
                self._loop.call_soon_threadsafe(self._carry)

    def _carry(self) -> None:
        if not self._calls:
            self._is_awake = False
            if not self._calls:
                return
            self._is_awake = True
        for _ in range(len(self._calls)):
            callback, args = self._calls.popleft()
            self._loop.call_soon(callback, *args)
        self._loop.call_soon(self._carry)


_bells: weakref.WeakValueDictionary[int, _Bell] = weakref.WeakValueDictionary()
"""By the id of their loop, which lives at least as long as its bell."""


def in_loop(callback: Callable[..., object]) -> Callable[..., None]:
    """Wrap `callback` for calls from any thread while this loop is open.

    Raises:
        UsageError: no loop of asyncio runs here.
    """
    loop = asyncio_loop()
    return partial(_bells.setdefault(id(loop), _Bell(loop)).call, callback)


def soon_in_loop(callback: Callable[[], object]) -> Callable[[], None]:
    """Return a function like `in_loop`'s, for thousands of calls.

    One call by the loop answers all calls so far.
    """
    is_asked = False

    def carry() -> None:
        nonlocal is_asked
        is_asked = False  # first: what is asked for from now on is carried out by another call
        callback()

    wake = in_loop(carry)

    def call() -> None:
        nonlocal is_asked
        if not is_asked:
            is_asked = True
            wake()

    return call


async def wait_in_loop(signal: Signal, timeout: float | None = None) -> bool:
    """Wait for a signal without blocking the loop; whether it has happened."""
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
