"""The clock that everything here waits on, and the mailboxes that threads read from.

Time, and waiting for it, go through one object, so that tests can put virtual time in its place:
nothing else in the library sleeps or reads a clock.
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
"""Waits are cut into pieces: a queue takes no timeout of years."""

SIGNAL_CHECK_INTERVAL_S = 1.0
"""How long a user's thread may wait without looking for signals.

Python looks for them before it puts a thread to sleep, and when something wakes it: one that comes
in between is not heard. So a Ctrl-C or a SIGTERM might end a wait only when its role came.
"""


class _Ring:
    """A binary semaphore: any thread rings, and one thread hears.

    A ring that nobody waits for is kept, once. Ringing is one step in C, so a signal handler and a
    finalizer may ring in the midst of a wait, or of another ring.

    A `queue.SimpleQueue` must not do this: its `get(timeout)` may wait for ever. If the time ends
    while it prepares to sleep, or while a signal handler runs, the rest of the time is negative,
    and it takes that for no timeout (seen with CPython 3.11). A lock looks at the time again.
    """

    def __init__(self) -> None:
        self._is_silent = threading.Lock()
        self._is_silent.acquire()

    def ring(self) -> None:
        """Let the wait that is under way end, or else the next one."""
        try:  # noqa: SIM105 - ten thousand roles ring ten thousand times
            self._is_silent.release()
        except RuntimeError:
            pass  # it rings already

    def wait(self, timeout: float | None) -> bool:
        """Wait for a ring, for some seconds or without an end; return whether it came."""
        return self._is_silent.acquire(timeout=-1 if timeout is None else timeout)


class ClockEvent:
    """An event that one thread waits for, and whose `set` never waits.

    A signal handler, or a finalizer, may set it on the very thread whose wait it interrupts. The
    lock of a `threading.Event` is not reentrant: `set` would wait for it for ever.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._ring = _Ring()

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it, and wake the thread that waits."""
        if not self._is_set:
            self._is_set = True
            self._ring.ring()

    def clear(self) -> None:
        """Reset it, for the thread that waits."""
        self._is_set = False
        self._ring.wait(0.0)

    def wait(self, timeout: float) -> bool:
        """Wait for some seconds, and return whether it is set.

        Return early where it is cleared meanwhile.
        """
        if not self._is_set:
            self._ring.wait(timeout)
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

    def event(self) -> ClockEvent:
        """Return a new event for `wait`."""
        ...

    def give_way(self, seconds: float) -> None:
        """Let other threads and processes run first, for about so long.

        It is a courtesy, and no event ends it. No virtual time passes meanwhile.
        """
        ...

    def wait(self, event: ClockEvent, timeout: float | None) -> bool:
        """Wait on a user's thread for an event; return whether it is set.

        The event is one of this clock's.
        """
        ...


def shown(moment: datetime, ahead: float) -> str:
    """Return the time some seconds after a moment, ISO 8601 in UTC.

    After the year 9999, it is the last time of that year.
    """
    try:
        moment += timedelta(seconds=ahead)
    except OverflowError:  # such as a delay of 1e12 s, which is as good as for ever
        moment = datetime.max.replace(tzinfo=UTC)
    return moment.isoformat(timespec="milliseconds")


class SystemClock:
    """Real time. CLOCK_BOOTTIME counts while the machine is suspended, as etcd's clock does."""

    # Seconds since the machine was booted; every grant asks, so there is no Python in between.
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
        """Wait for an event, and hear a signal within `SIGNAL_CHECK_INTERVAL_S`."""
        until = None if timeout is None else self.now() + timeout
        while True:
            left = SIGNAL_CHECK_INTERVAL_S if until is None else until - self.now()
            if event.wait(max(0.0, min(left, SIGNAL_CHECK_INTERVAL_S))):
                return True
            if left <= 0.0:
                return False


class _SystemMailbox(Generic[T]):
    """Deliver messages in real time. Each one rings after it lies there, so none is slept past."""

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
