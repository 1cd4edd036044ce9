"""What others are told of: something that happens once (a signal), or again and again.

One signal serves both faces: a thread waits on it, an event loop has itself called. Nothing here
has a lock, so that a signal handler or a finalizer may use it in the midst of another call.
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
    forks = 0  # between the first process and this one: asking for the pid takes a system call


def _count_fork() -> None:
    _Process.forks += 1


os.register_at_fork(after_in_child=_count_fork)


class Signal:
    """Set once, for ever. Safe from any thread; callbacks must be short and must not block.

    Lists are changed in single steps, and whoever pops a callback calls it.
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
        """Let it have happened."""
        self._is_set = True
        while self._callbacks:
            try:
                callback = self._callbacks.pop(0)
            except IndexError:  # another thread was faster
                return
            try:
                callback()
            except Exception:  # one that raises must not keep others from hearing
                log.exception("%r, called at a signal, raised", callback)

    def then(self, callback: Callable[[], None]) -> None:
        """Call back once it has happened; at once where it has already."""
        self._refuse_fork()
        self._callbacks.append(callback)
        if self._is_set:  # looked at only now: whoever sets it meanwhile has seen the callback
            self.set()

    def forget(self, callback: Callable[[], None]) -> None:
        """Call that back no more."""
        with contextlib.suppress(ValueError):
            self._callbacks.remove(callback)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait on this thread until the signal is set, at most `timeout` seconds.

        Return whether it is set.
        """
        if self.is_set():
            return True
        event = self._clock.event()
        self.then(event.set)
        try:
            return self._clock.wait(event, timeout)
        finally:
            self.forget(event.set)

    def _refuse_fork(self) -> None:
        """Raise in a forked child, where nobody would ever set it."""
        if self._forks != _Process.forks:
            raise ForkedProcessError(
                "what is waited for belongs to the parent process; join in this process instead"
            )


class Subscribers:
    """Called after each step of an engine that changed something. Safe from any thread."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[], None]] = []

    def add(self, callback: Callable[[], None]) -> None:
        """Call this, which must be short and must not block."""
        self._callbacks.append(callback)

    def remove(self, callback: Callable[[], None]) -> None:
        """Call it no more."""
        with contextlib.suppress(ValueError):
            self._callbacks.remove(callback)

    def notify(self) -> None:
        """Call them all."""
        for callback in list(self._callbacks):
            callback()
