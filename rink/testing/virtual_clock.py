"""Move a clock from one wake-up of a thread to the next."""

from __future__ import annotations

import threading
from collections import deque
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

import attrs

from rink.engine.clock import ClockEvent, shown
from rink.testing.memory.cluster import MemoryCluster

T = TypeVar("T")

NEVER = float("inf")
BUSY_TIMEOUT_S = 30.0
"""The maximum number of real seconds until a thread must be idle."""

EPOCH = datetime(2030, 1, 1, tzinfo=UTC)
"""The date at which a virtual clock would show 0 s."""


class _Mailbox(Generic[T]):
    """Pass messages to a reader, and know whether it is idle."""

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


class LoopCalls(_Mailbox[None]):
    """Hold the calls of an event loop, which moves the time while it waits.

    While no thread of the loop's executor works, the loop always counts as idle, so that coroutines
    may move the time, too. While such a thread works, only that thread may move the time, and the
    loop counts as busy until it waits.
    """

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.is_idle, self.until = True, NEVER
        self._count_jobs = 0
        with clock.changed:
            clock.mailboxes.add(self)

    def put(self, item: None = None) -> None:
        """Note a call, from any thread."""
        with self.clock.changed:
            super().put(item)
            self.clock.changed.notify_all()  # the loop itself may wait for this

    def wake(self) -> None:
        """Wake the loop; call this with the clock's lock."""
        self.is_idle = not self._count_jobs
        self.filled.notify_all()

    def is_set(self) -> bool:
        """Return whether there is a call, like `Event.is_set`."""
        return bool(self.items)

    def wait(self, timeout: float | None) -> None:
        """Wait for a call, at most for `timeout` virtual seconds; None: no limit."""
        until = NEVER if timeout is None else self.clock.now() + timeout
        if not self._count_jobs:
            self.clock.move(until, self)
        self.take(until)
        self.note_job(0)

    def note_job(self, change: int) -> None:
        """Count a thread of the executor that begins to work (1) or ends (-1)."""
        self._count_jobs += change
        with self.clock.changed:
            self.is_idle, self.until = not self._count_jobs, NEVER
            self.clock.changed.notify_all()


class _Event(ClockEvent):
    """Notify the clock when the event is set."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def set(self) -> None:
        super().set()
        with self._clock.changed:
            self._clock.changed.notify_all()


class ExecutorJob:
    """Represent a call in an executor's thread, which may move the time."""

    thread: int | None = None
    """The identifier of the thread, after its begin."""


@attrs.frozen
class _Wait:
    """Describe a thread's wait for a time or an event."""

    until: float
    event: ClockEvent | LoopCalls | None

    def is_over(self, now: float) -> bool:
        return now >= self.until or (self.event is not None and self.event.is_set())


class VirtualClock:
    """Implement `rink.engine.clock.Clock` for tests, which move the time.

    Any thread that waits may move the time. Invariant: the time moves only while each thread of the
    library is idle, each job waits here, and no wait is over. It never moves beyond the end of a
    wait. So the time stands still from the end of a wait until its thread runs. If a job's wait
    ends, the time then stands still until the job waits again or ends.
    """

    def __init__(self) -> None:
        # Reentrant, because a finalizer may post a message on a thread that holds the lock.
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.mailboxes: set[_Mailbox[Any]] = set()
        self.jobs: set[ExecutorJob] = set()
        self._waits: dict[int, _Wait] = {}  # by the identifier of the thread
        self.cluster = MemoryCluster(clock=self, pumped=True)
        self._now = 1_000.0
        self._pumping = threading.Lock()

    def now(self) -> float:
        """Return the virtual time, in seconds."""
        return self._now

    def wall(self, ahead: float = 0.0) -> str:
        """Return a wall-clock time that moves with the virtual time."""
        return shown(EPOCH, self._now + ahead)

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
        self.move(NEVER if timeout is None else self._now + timeout, event)
        return event.is_set()

    def move(self, until: float, event: ClockEvent | LoopCalls | None = None) -> None:
        """Jump from one wake-up to the next, until a time or an event."""
        wait, thread = _Wait(until, event), threading.get_ident()
        with self.changed:
            outer = self._waits.get(thread)  # a finalizer may wait amid a wait
            self._waits[thread] = wait
            self.changed.notify_all()
        try:
            while not wait.is_over(self._now):
                self._move(wait)
        finally:
            with self.changed:
                del self._waits[thread]
                if outer is not None:
                    self._waits[thread] = outer
                self.changed.notify_all()

    def advance(self, seconds: float) -> None:
        """Advance the time, and return when all threads are idle."""
        self.move(self._now + seconds)
        self.settle()

    def settle(self) -> None:
        """Deliver messages until all threads are idle, without moving the clock."""
        while self._wait_idle() and self._pump():
            pass

    def _move(self, wait: _Wait) -> None:
        """Wait until all threads are idle, and then jump to the next event.

        The event is a wake-up, the end of a lease or the end of a wait.
        """
        if not self._wait_idle(wait) or self._pump():
            return
        expiry = self.cluster.next_expiry
        with self.changed:
            if not self._all_idle() or wait.is_over(self._now):
                return
            wakes = [mailbox.until for mailbox in self.mailboxes]
            ends = [each.until for each in self._waits.values()]
            moment = min([*wakes, *ends, NEVER if expiry is None else expiry])
            if moment == NEVER:
                self.changed.wait(BUSY_TIMEOUT_S)  # until another thread of the test acts
                return
            self._now = max(self._now, moment)
            for mailbox in self.mailboxes:
                if mailbox.until <= self._now:
                    mailbox.wake()
            self.changed.notify_all()
        self.cluster.tick()

    def _all_idle(self) -> bool:
        """Return whether every thread except the caller's is idle."""
        caller = threading.get_ident()
        for mailbox in self.mailboxes:
            # A finalizer may have posted the item on the reader's thread just before it waited.
            if mailbox.items:
                mailbox.wake()
        return (
            all(mailbox.is_idle for mailbox in self.mailboxes)
            and all(job.thread in self._waits or job.thread == caller for job in self.jobs)
            and not any(wait.is_over(self._now) for wait in self._waits.values())
        )

    def _wait_idle(self, wait: _Wait | None = None) -> bool:
        """Wait until every thread is idle, or return False if `wait` is over."""
        with self.changed:
            done = self.changed.wait_for(
                lambda: self._all_idle() or (wait is not None and wait.is_over(self._now)),
                BUSY_TIMEOUT_S,
            )
            if not done:
                raise TimeoutError(
                    f"a thread has been busy for {BUSY_TIMEOUT_S:.0f} real seconds: does a "
                    "callback or a scheme block, or does a coroutine make a blocking call of Rink? "
                    "Make such a call by asyncio.to_thread"
                )
            return wait is None or not wait.is_over(self._now)

    def _pump(self) -> bool:
        """Deliver etcd's messages, and return whether there were any."""
        with self._pumping:
            return self.cluster.pump() > 0
