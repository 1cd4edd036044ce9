"""Run asyncio in virtual time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple

from rink.engine.clock import Clock

Ts = TypeVarTuple("Ts")


class _Selector(selectors.DefaultSelector):
    """A selector whose waits move the virtual clock.

    Invariant: `call_soon_threadsafe` queues its call before it sets the event, and the event is
    cleared before sockets are read again. So no call from another thread waits for time to pass.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self.clock = clock
        self.has_calls = clock.event()

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        self.clock.wait(self.has_calls, timeout)
        self.has_calls.clear()
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop of asyncio whose time is a clock's.

    Time stands still while a task can run. Otherwise it jumps to the next moment at which the loop
    or a thread of the library wants to wake. Sockets are only looked at; waiting for one does not
    stop the time.

    Args:
        clock: a `rink.testing.virtual.VirtualClock`.
    """

    def __init__(self, clock: Clock) -> None:
        self._virtual = _Selector(clock)
        super().__init__(self._virtual)

    def time(self) -> float:
        """Return virtual seconds."""
        return self._virtual.clock.now()

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Queue a call from any thread, and end the current wait for time to pass."""
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self._virtual.has_calls.set()
        return handle
