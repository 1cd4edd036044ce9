"""The clock that everything here waits on, and the mailboxes that threads read from.

Time, and waiting for it, go through one object, so that tests can put virtual time in its place:
nothing else in the library sleeps or reads a clock.
"""

from __future__ import annotations

import contextlib
import queue
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

LONGEST_WAIT_S = 3600.0
"""Waits are cut into pieces: a queue takes no timeout of years."""

DEAF_S = 1.0
"""How long a user's thread may wait without looking for signals.

Python looks for them before it puts a thread to sleep, and when something wakes it: one that comes
in between is not heard. So a Ctrl-C or a SIGTERM might end a wait only when its role came.
"""


class Event:
    """An event that one thread waits for, without a lock.

    A signal handler, or a finalizer, may set it on the very thread whose wait it interrupts: the
    lock of a `threading.Event` would be waited for there for ever.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._rings: queue.SimpleQueue[None] = queue.SimpleQueue()  # its `put` is reentrant

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake the thread that waits."""
        if not self._is_set:  # one ring for a thousand calls
            self._is_set = True
            self._rings.put(None)

    def clear(self) -> None:
        """Reset it, for the thread that waits."""
        self._is_set = False
        with contextlib.suppress(queue.Empty):
            while True:
                self._rings.get_nowait()

    def wait(self, timeout: float) -> bool:
        """Wait for some seconds, and return whether it is set.

        Return early where it is cleared meanwhile.
        """
        if not self._is_set:
            with contextlib.suppress(queue.Empty):
                self._rings.get(timeout=timeout)
        return self._is_set


class Mailbox(Protocol[T]):
    """Messages for one thread, which reads all of them at once."""

    def put(self, item: T) -> None:
        """Add a message; safe from any thread and from a finalizer."""
        ...

    def take(self, until: float | None) -> list[T]:
        """Return every message, waiting until a time for the first one.

        None waits for ever.
        """
        ...

    def close(self) -> None:
        """Close the mailbox: nobody reads any more."""
        ...


class Clock(Protocol):
    """Monotonic time in seconds, and the only ways to wait."""

    def now(self) -> float:
        """Return the time now."""
        ...

    def wall(self, ahead: float = 0.0) -> str:
        """Return the wall-clock time, or that so many seconds ahead.

        It is for people, and never compared.
        """
        ...

    def mailbox(self) -> Mailbox[T]:
        """Return a new mailbox, to be read by one thread."""
        ...

    def event(self) -> Event:
        """Return a new event for `wait`."""
        ...

    def give_way(self, seconds: float) -> None:
        """Let other threads and processes run first, for about so long.

        It is a courtesy, and no event ends it. No virtual time passes meanwhile.
        """
        ...

    def wait(self, event: Event, timeout: float | None) -> bool:
        """Wait on a user's thread for an event; return whether it is set.

        The event is one of this clock's.
        """
        ...


class SystemClock:
    """Real time. CLOCK_BOOTTIME counts while the machine is suspended, as etcd's clock does."""

    # Seconds since the machine was booted; every grant asks, so there is no Python in between.
    now = staticmethod(
        partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    )

    def wall(self, ahead: float = 0.0) -> str:
        """Return the wall-clock time, ISO 8601 in UTC."""
        return (datetime.now(UTC) + timedelta(seconds=ahead)).isoformat(timespec="milliseconds")

    def mailbox(self) -> Mailbox[T]:
        """Return a mailbox whose `put` is reentrant, for finalizers."""
        return _QueueMailbox(self)

    def event(self) -> Event:
        """Return an event that takes no lock."""
        return Event()

    def give_way(self, seconds: float) -> None:
        """Sleep for so long."""
        self.event().wait(seconds)

    def wait(self, event: Event, timeout: float | None) -> bool:
        """Wait for an event, and hear a signal within `DEAF_S`."""
        until = None if timeout is None else self.now() + timeout
        while True:
            left = DEAF_S if until is None else until - self.now()
            if event.wait(max(0.0, min(left, DEAF_S))):
                return True
            if left <= 0.0:
                return False


class _QueueMailbox(Generic[T]):
    def __init__(self, clock: SystemClock) -> None:
        self._queue: queue.SimpleQueue[T] = queue.SimpleQueue()
        self._clock = clock

    def put(self, item: T) -> None:
        self._queue.put(item)

    def take(self, until: float | None) -> list[T]:
        items: list[T] = []
        while not items:
            try:
                items.append(self._queue.get(timeout=self._left(until)))
            except queue.Empty:
                if until is not None and self._clock.now() >= until:
                    return []
        try:
            while True:
                items.append(self._queue.get_nowait())
        except queue.Empty:
            return items

    def _left(self, until: float | None) -> float | None:
        if until is None:
            return None
        return max(0.0, min(until - self._clock.now(), LONGEST_WAIT_S))

    def close(self) -> None:
        pass


SYSTEM = SystemClock()
