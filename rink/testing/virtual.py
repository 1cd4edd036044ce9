"""Virtual time: a group of members in this process for whom an hour takes a moment.

    with virtual_time() as time:
        session = time.session()
        with rink.Rink(session, "orders", rebalance_delay=60) as r:
            time.advance(3600)

The members are real: their engines, threads and leases run as they would, on an etcd in memory.
Only the clock is ours: an hour takes some tenths of a second for each of them. Every thread of the
library waits through that clock, so it knows when all of them have nothing to do; then, and only
then, time jumps to the next moment at which one of them wants to wake. While a test's own thread
waits in a call of the library (`await_role`, say), time jumps the same way, until the call returns
or its timeout is over.

The asyncio face waits on the event loop's own time: advance with `asyncio.to_thread`.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from rink.engine.clock import ClockEvent, shown
from rink.session import Session
from rink.testing.memory.cluster import MemoryCluster

T = TypeVar("T")

NEVER = float("inf")
STUCK_AFTER_S = 30.0
"""Real seconds after which a thread that does not come to rest is an error, not a wait."""


class _Mailbox(Generic[T]):
    """A mailbox that knows whether its reader has nothing to do."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        # Its reader's own: whoever has nothing to do is not woken by what others hear.
        self.filled = threading.Condition(clock.lock)
        self.items: deque[T] = deque()
        self.rests = False
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
                    self.rests = False
                    return []
                self.rests = True
                self.clock.changed.notify_all()
                self.filled.wait()
            items = list(self.items)
            self.items.clear()
            return items

    def wake(self) -> None:
        """Make its reader look again; call this with the clock's lock."""
        self.rests = False
        self.filled.notify_all()

    def close(self) -> None:
        with self.clock.changed:
            self.clock.mailboxes.discard(self)
            self.clock.changed.notify_all()


class _Event(ClockEvent):
    """An event whose setting the clock hears of."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def set(self) -> None:
        super().set()
        with self._clock.changed:
            self._clock.changed.notify_all()


class VirtualClock:
    """A `rink.engine.clock.Clock` on which nothing happens by itself."""

    def __init__(self) -> None:
        # Reentrant: a finalizer may post a message on a thread that is in here already.
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
        """Return an event that this clock can wait for."""
        return _Event(self)

    def give_way(self, seconds: float) -> None:
        """Return at once: time moves only while all rest."""

    def wait(self, event: ClockEvent, timeout: float | None) -> bool:
        """Wait for an event while time jumps whenever all others rest."""
        until = NEVER if timeout is None else self._now + timeout
        while not event.is_set() and self._now < until:
            self._move(until, event)
        return event.is_set()

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that happens meanwhile; returns when all rest."""
        until = self._now + seconds
        while self._now < until:
            self._move(until)
        self.settle()

    def settle(self) -> None:
        """Let everything happen that needs no time."""
        while self._come_to_rest() and self._pump():
            pass

    def _move(self, until: float, event: ClockEvent | None = None) -> None:
        """Bring everybody to rest, then jump to the next wake-up, at most to `until`."""
        if not self._come_to_rest(event) or self._pump():
            return
        expiry = self.cluster.next_expiry
        with self.changed:
            if not self._all_rest() or (event is not None and event.is_set()):
                return
            wakes = [mailbox.until for mailbox in self.mailboxes]
            moment = min([*wakes, NEVER if expiry is None else expiry, until])
            if moment == NEVER:
                self.changed.wait(STUCK_AFTER_S)  # only another thread of the test can help
                return
            self._now = max(self._now, moment)
            for mailbox in self.mailboxes:
                if mailbox.until <= self._now:
                    mailbox.wake()
            self.changed.notify_all()
        self.cluster.tick()

    def _all_rest(self) -> bool:
        for mailbox in self.mailboxes:
            if mailbox.items:  # perhaps posted by a finalizer on its reader, just before that slept
                mailbox.wake()
        return all(mailbox.rests for mailbox in self.mailboxes)

    def _come_to_rest(self, event: ClockEvent | None = None) -> bool:
        """Wait until every thread rests; false where `event` came first."""
        with self.changed:
            done = self.changed.wait_for(
                lambda: self._all_rest() or (event is not None and event.is_set()), STUCK_AFTER_S
            )
            if not done:
                raise TimeoutError(
                    f"a thread has not come to rest for {STUCK_AFTER_S:.0f} real seconds: does a "
                    "callback, or a scheme, block?"
                )
            return event is None or not event.is_set()

    def _pump(self) -> bool:
        """Deliver what etcd has to say; whether there was anything."""
        with self._pumping:
            return self.cluster.pump() > 0


class VirtualTime:
    """Sessions on one in-memory etcd, and the clock that they live by."""

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
        """Let time pass, and everything happen that happens meanwhile."""
        self.clock.advance(seconds)

    def settle(self) -> None:
        """Let everything happen that needs no time."""
        self.clock.settle()

    def close(self) -> None:
        """Close every session, without waiting for roles that a failed test still holds."""
        for session in self._sessions:
            session.close(timeout=60.0)


@contextmanager
def virtual_time() -> Iterator[VirtualTime]:
    """Give an etcd in memory and a clock that moves when it is told to."""
    time = VirtualTime()
    try:
        yield time
    finally:
        time.close()
