"""Something that happens once: a role is lost, a wait is granted, a member has left.

One signal serves both faces: a thread waits on it, an event loop has itself called.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from rink.engine.clock import Clock
from rink.errors import ForkedProcessError

log = logging.getLogger("rink")


class Signal:
    """Set once, for ever. Safe from any thread; callbacks must be short and must not block."""

    __slots__ = ("_callbacks", "_clock", "_is_set", "_lock", "_pid")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_set = False
        self._lock = threading.RLock()  # a signal handler may wait on what it interrupted
        self._pid = os.getpid()
        self._callbacks: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        """Whether it has happened."""
        self._refuse_fork()
        return self._is_set

    def set(self) -> None:
        """Let it have happened."""
        with self._lock:
            self._is_set = True
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:  # one that raises must not keep others from hearing
                log.exception("rink: %r, called at a signal, raised", callback)

    def then(self, callback: Callable[[], None]) -> None:
        """Call back once it has happened; at once where it has already."""
        self._refuse_fork()
        with self._lock:
            if not self._is_set:
                self._callbacks.append(callback)
                return
        callback()

    def forget(self, callback: Callable[[], None]) -> None:
        """Call that back no more."""
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait on this thread, for `timeout` seconds at most; whether it has happened."""
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
        if self._pid != os.getpid():
            raise ForkedProcessError(
                "what is waited for belongs to the parent process; join in this process instead"
            )
