"""Read the time, wait for it, and deliver messages to threads.

All of this goes through one object, so tests can replace it by virtual time. Nothing else in the
core and the engine reads a clock. Only `step_queue` waits by itself, on a lock.
"""

from __future__ import annotations

import collections
import threading
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Generic, Protocol, TypeVar

T = TypeVar("T")

MAX_WAIT_S = 3600.0
"""Longest single wait on a lock, which takes no timeout of years. A longer wait is repeated."""

SIGNAL_CHECK_INTERVAL_S = 1.0
"""Interval at which a user's thread that waits wakes up for signals, in seconds.

Python runs signal handlers before it puts a thread to sleep, and when something wakes the thread. A
signal that comes in between is not handled until then. Without this interval, a Ctrl-C or a SIGTERM
might end a wait for a role only when the role is granted.
"""


class _Ring:
    """Let any thread wake one waiting thread: a binary semaphore.

    If no thread waits, one ring is kept for the next wait. Ringing is one step in C, so a signal
    handler or a finalizer may ring in the middle of a wait, or of another ring.

    A `queue.SimpleQueue` cannot replace this, because its `get(timeout)` may wait for ever. The
    time may end while it prepares to sleep, or while a signal handler runs. Then the rest of the
    time is negative, and it takes that for no timeout (seen with CPython 3.11). A lock checks the
    time again.
    """

    def __init__(self) -> None:
        self._is_silent = threading.Lock()
        self._is_silent.acquire()

    def ring(self) -> None:
        """End the current wait, or else the next one."""
        try:  # noqa: SIM105 - ten thousand roles ring ten thousand times
            self._is_silent.release()
        except RuntimeError:
            pass  # it rings already

    def wait(self, timeout: float | None) -> bool:
        """Wait for a ring, and return whether it came; None waits for ever."""
        return self._is_silent.acquire(timeout=-1 if timeout is None else timeout)


class ClockEvent:
    """Let one thread wait for an event, whose `set` never blocks.

    A signal handler or a finalizer may set it on the very thread whose wait it interrupts. With a
    `threading.Event`, `set` would then wait for ever, because its lock is not reentrant.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._ring = _Ring()

    def is_set(self) -> bool:
        """Return whether the event is set."""
        return self._is_set

    def set(self) -> None:
        """Set the event, and wake the thread that waits."""
        if not self._is_set:
            self._is_set = True
            self._ring.ring()

    def clear(self) -> None:
        """Reset the event. Only the waiting thread may call this."""
        self._is_set = False
        self._ring.wait(0.0)

    def wait(self, timeout: float) -> bool:
        """Wait for at most `timeout` seconds, and return whether the event is set.

        It may return early if the event is set and cleared meanwhile.
        """
        if not self._is_set:
            self._ring.wait(timeout)
        return self._is_set


class Mailbox(Protocol[T]):
    """Keep messages for one thread, which reads all of them at once."""

    def put(self, item: T) -> None:
        """Add a message; safe from any thread and from a finalizer."""

    def take(self, until: float | None) -> list[T]:
        """Return all messages. If there is none, wait for the first one.

        `until` is the time by the clock at which the wait ends; None waits for ever.
        """

    def close(self) -> None:
        """Close the mailbox after the last read."""


class Clock(Protocol):
    """Give monotonic time in seconds, and the only ways to wait."""

    def now(self) -> float:
        """Return the time now."""

    def wall(self, ahead: float = 0.0) -> str:
        """Return the wall-clock time, or a later one, for people only."""

    def mailbox(self) -> Mailbox[T]:
        """Return a new mailbox, to be read by one thread."""

    def event(self) -> ClockEvent:
        """Return a new event for `wait`."""

    def give_way(self, seconds: float) -> None:
        """Let other threads and processes run first, for about that many seconds.

        No event ends this pause, and correctness does not depend on it. In virtual time it takes
        no time.
        """

    def wait(self, event: ClockEvent, timeout: float | None) -> bool:
        """Wait for an event on a user's thread, and return whether it is set."""


def shown(moment: datetime, ahead: float) -> str:
    """Return the time `ahead` seconds after a moment, ISO 8601 in UTC.

    Any time after the year 9999 is shown as the end of that year.
    """
    try:
        moment += timedelta(seconds=ahead)
    except OverflowError:  # a delay of 1e12 s, for example
        moment = datetime.max.replace(tzinfo=UTC)
    return moment.isoformat(timespec="milliseconds")


class SystemClock:
    """Give real time.

    CLOCK_BOOTTIME goes on while the machine is suspended, as etcd's clock does.
    """

    # Every grant reads the time, so this calls C without any Python in between.
    now = staticmethod(
        partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
    )

    def wall(self, ahead: float = 0.0) -> str:
        """Return the wall-clock time, ISO 8601 in UTC."""
        return shown(datetime.now(UTC), ahead)

    def mailbox(self) -> Mailbox[T]:
        """Return a mailbox whose `put` is reentrant, for finalizers."""
        return _SystemMailbox(self)

    def event(self) -> ClockEvent:
        """Return an event that takes no lock."""
        return ClockEvent()

    def give_way(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        self.event().wait(seconds)

    def wait(self, event: ClockEvent, timeout: float | None) -> bool:
        """Wait for an event, and handle signals every `SIGNAL_CHECK_INTERVAL_S`."""
        until = None if timeout is None else self.now() + timeout
        while True:
            left = SIGNAL_CHECK_INTERVAL_S if until is None else until - self.now()
            if event.wait(max(0.0, min(left, SIGNAL_CHECK_INTERVAL_S))):
                return True
            if left <= 0.0:
                return False


class _SystemMailbox(Generic[T]):
    """Deliver messages in real time.

    Invariant: a message is in the queue before it rings, and the reader checks the queue after each
    ring and before each sleep. So the reader never sleeps while a message lies there.
    """

    def __init__(self, clock: SystemClock) -> None:
        self._items: collections.deque[T] = collections.deque()
        self._ring = _Ring()
        self._clock = clock

    def put(self, item: T) -> None:
        self._items.append(item)
        self._ring.ring()

    def take(self, until: float | None) -> list[T]:
        while not self._items:
            has_rung = self._ring.wait(self._left(until))
            if not has_rung and until is not None and self._clock.now() >= until:
                return []
        items: list[T] = []
        try:
            while True:
                items.append(self._items.popleft())
        except IndexError:
            return items

    def _left(self, until: float | None) -> float | None:
        if until is None:
            return None
        return max(0.0, min(until - self._clock.now(), MAX_WAIT_S))

    def close(self) -> None:
        pass


SYSTEM = SystemClock()
