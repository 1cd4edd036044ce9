"""Notify others of an event that happens once, or again and again.

`Signal` is for an event that happens once, on both faces: a thread waits on it, and an event loop
registers a callback. `Subscribers` is for repeated events. Neither has a lock, so a signal handler
or a finalizer may use them in the middle of another call.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable

from rink.engine.clock import Clock
from rink.errors import ForkedProcessError

log = logging.getLogger("rink")


class _Process:
    forks = 0  # from the first process to this one; reading it is cheaper than os.getpid()


def _count_fork() -> None:
    _Process.forks += 1


os.register_at_fork(after_in_child=_count_fork)


class Signal:
    """Hold a flag that is set once, for ever. Safe from any thread.

    Callbacks must be short and must not block.

    Invariant: once the flag is set, each callback is called exactly once. `set` writes the flag
    before it empties the list, and `then` appends before it reads the flag. So at least one of the
    two sees both the flag and the callback. Both pop a callback before they call it. A pop is a
    single step, so only one of them gets it.
    """

    __slots__ = ("_callbacks", "_clock", "_forks", "_is_set")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_set = False
        self._forks = _Process.forks
        self._callbacks: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        """Return whether the signal is set."""
        self._refuse_fork()
        return self._is_set

    def set(self) -> None:
        """Set the flag, and call the callbacks."""
        self._is_set = True
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread was faster
                return
            try:
                callback()
            except Exception:  # the other callbacks must still be called
                log.exception("callback %r of a signal raised", callback)

    def then(self, callback: Callable[[], None]) -> None:
        """Call back once the flag is set, or now if it is set already."""
        self._refuse_fork()
        self._callbacks.append(callback)
        if self._is_set:  # read after the append: see the invariant above
            self.set()

    def forget(self, callback: Callable[[], None]) -> None:
        """Remove a callback, if it is registered."""
        with contextlib.suppress(ValueError):
            self._callbacks.remove(callback)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds, and return whether the flag is set."""
        if self.is_set():
            return True
        event = self._clock.event()
        self.then(event.set)
        try:
            return self._clock.wait(event, timeout)
        finally:
            self.forget(event.set)

    def _refuse_fork(self) -> None:
        """Raise in a forked child, where nobody would ever set the flag."""
        if self._forks != _Process.forks:
            raise ForkedProcessError(
                "this signal belongs to the parent process; join in this process instead"
            )


class Subscribers:
    """Call callbacks after each change by a step. Safe from any thread."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    def add(self, callback: Callable[[], None]) -> None:
        """Register a callback, which must be short and must not block."""
        self._callbacks.append(callback)

    def remove(self, callback: Callable[[], None]) -> None:
        """Remove a callback, if it is registered."""
        with contextlib.suppress(ValueError):
            self._callbacks.remove(callback)

    def notify(self) -> None:
        """Call every callback."""
        for callback in list(self._callbacks):
            callback()
