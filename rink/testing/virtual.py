"""Run members of a group in virtual time: an hour takes a moment.

    with virtual_time() as time:
        session = time.session()
        with rink.Rink(session, "orders", rebalance_delay=60) as r:
            time.advance(3600)

The members are real: they have engines, threads and leases, on an etcd in memory. An hour takes
some tenths of a second for each member.

Every thread of the library waits through this clock. So the clock knows when all threads are idle.
Only then it jumps to the next moment at which one of them wants to wake, also while a test's own
thread waits in a call of the library, such as `await_role`.

Coroutines run in the same time by `time.run(main())`, and there `asyncio.sleep(3600)` advances it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from rink.engine.clock import ClockEvent, shown
from rink.session import Session
from rink.testing.memory.cluster import MemoryCluster
from rink.testing.virtual_loop import VirtualLoop

T = TypeVar("T")

NEVER = float("inf")
BUSY_TIMEOUT_S = 30.0
"""Real seconds after which a thread that does not become idle is an error."""


class _Mailbox(Generic[T]):
    """A mailbox that knows whether its reader is idle."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        # Each reader has its own condition, so that messages to others do not wake it.
        self.filled = threading.Condition(clock.lock)
        self.items: deque[T] = deque()
        self.is_idle = False
        self.until = NEVER

    def put(self, item: T) -> None:
        with self.clock.changed:
            self.items.append(item)
            self.wake()

    def take(self, until: float | None) -> list[T]:
        with self.clock.changed:
            self.until = NEVER if until is None else until
            while not self.items:
                if self.clock.now() >= self.until:
                    self.is_idle = False
                    return []
                self.is_idle = True
                self.clock.changed.notify_all()
                self.filled.wait()
            items = list(self.items)
            self.items.clear()
            return items

    def wake(self) -> None:
        """Wake the reader; call this with the clock's lock."""
        self.is_idle = False
        self.filled.notify_all()

    def close(self) -> None:
        with self.clock.changed:
            self.clock.mailboxes.discard(self)
            self.clock.changed.notify_all()


class _Event(ClockEvent):
    """An event that notifies the clock when it is set."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def set(self) -> None:
        super().set()
        with self._clock.changed:
            self._clock.changed.notify_all()


class VirtualClock:
    """A `rink.engine.clock.Clock` that moves only when a test moves it."""

    def __init__(self) -> None:
        # Reentrant, because a finalizer may post a message on a thread that holds the lock.
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.mailboxes: set[_Mailbox[Any]] = set()
        self.cluster = MemoryCluster(clock=self, pumped=True)
        self._now = 1_000.0
        self._pumping = threading.Lock()

    def now(self) -> float:
        """Return virtual seconds."""
        return self._now

    def wall(self, ahead: float = 0.0) -> str:
        """Return a wall-clock time that moves with the virtual one."""
        return shown(datetime(2030, 1, 1, tzinfo=UTC), self._now + ahead)

    def mailbox(self) -> Any:
        """Return a mailbox whose reader counts as busy until it waits."""
        mailbox: _Mailbox[Any] = _Mailbox(self)
        with self.changed:
            self.mailboxes.add(mailbox)
        return mailbox

    def event(self) -> ClockEvent:
        """Return an event for `wait`."""
        return _Event(self)

    def give_way(self, seconds: float) -> None:
        """Return at once, because time moves only while all threads are idle."""

    def wait(self, event: ClockEvent, timeout: float | None) -> bool:
        """Wait for an event, and jump while all other threads are idle."""
        until = NEVER if timeout is None else self._now + timeout
        while not event.is_set() and self._now < until:
            self._move(until, event)
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Let time pass, and return when all threads are idle."""
        until = self._now + seconds
        while self._now < until:
            self._move(until)
        self.settle()

    def settle(self) -> None:
        """Deliver all messages until all threads are idle; the clock stands."""
        while self._wait_idle() and self._pump():
            pass

    def _move(self, until: float, event: ClockEvent | None = None) -> None:
        """Wait until all threads are idle, then jump to a wake-up or `until`."""
        if not self._wait_idle(event) or self._pump():
            return
        expiry = self.cluster.next_expiry
        with self.changed:
            if not self._all_idle() or (event is not None and event.is_set()):
                return
            wakes = [mailbox.until for mailbox in self.mailboxes]
            moment = min([*wakes, NEVER if expiry is None else expiry, until])
            if moment == NEVER:
                self.changed.wait(BUSY_TIMEOUT_S)  # until another thread of the test does something
                return
            self._now = max(self._now, moment)
            for mailbox in self.mailboxes:
                if mailbox.until <= self._now:
                    mailbox.wake()
            self.changed.notify_all()
        self.cluster.tick()

    def _all_idle(self) -> bool:
        for mailbox in self.mailboxes:
            # A finalizer may have posted the item on the reader's thread just before it waited.
            if mailbox.items:
                mailbox.wake()
        return all(mailbox.is_idle for mailbox in self.mailboxes)

    def _wait_idle(self, event: ClockEvent | None = None) -> bool:
        """Wait until every thread is idle; return False if `event` came first."""
        with self.changed:
            done = self.changed.wait_for(
                lambda: self._all_idle() or (event is not None and event.is_set()), BUSY_TIMEOUT_S
            )
            if not done:
                raise TimeoutError(
                    f"a thread of the library is busy for {BUSY_TIMEOUT_S:.0f} real seconds: does "
                    "a callback or a scheme block?"
                )
            return event is None or not event.is_set()

    def _pump(self) -> bool:
        """Deliver etcd's messages; return whether there were any."""
        with self._pumping:
            return self.cluster.pump() > 0


class VirtualTime:
    """Open sessions on one in-memory etcd with a virtual clock.

    Attributes:
        clock: the `VirtualClock` of all sessions.
        cluster: the `MemoryCluster` of all sessions.
    """

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.cluster = self.clock.cluster
        self._sessions: list[Session] = []

    def session(self, **settings: Any) -> Session:
        """Open a session, with the settings of `rink.Session`."""
        session = Session(self.cluster.client(), clock=self.clock, **settings)
        self._sessions.append(session)
        return session

    def now(self) -> float:
        """Return virtual seconds."""
        return self.clock.now()

    def advance(self, seconds: float) -> None:
        """Let time pass, and return when all threads are idle."""
        self.clock.advance(seconds)

    def settle(self) -> None:
        """Deliver all messages until all threads are idle; the clock stands."""
        self.clock.settle()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as `asyncio.run` does, in virtual time.

        A call that works in a thread does not stop the time.
        """
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock)) as runner:
            return runner.run(coroutine)

    def close(self) -> None:
        """Close every session, also if a failed test still holds roles."""
        for session in self._sessions:
            session.close(timeout=60.0)


@contextmanager
def virtual_time() -> Iterator[VirtualTime]:
    """Give an etcd in memory and a clock that moves only when a test moves it."""
    time = VirtualTime()
    try:
        yield time
    finally:
        time.close()
