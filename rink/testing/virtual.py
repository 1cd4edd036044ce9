"""Run members of a group in virtual time: an hour takes a moment.

    with virtual_time() as time:
        session = time.session()
        with rink.Rink(session, "orders", rebalance_delay=60) as r:
            time.advance(3600)

The members are real: they have engines, threads and leases, on an etcd in memory. An hour takes
some tenths of a second for each member.

Every thread of the library waits through this clock. So the clock knows when all threads are idle.
Only then does it jump to the next time at which a thread wants to wake. It also jumps while a
test's own thread waits in a call of the library, such as `await_role`.

`time.run(main())` runs coroutines in the same time. There, `asyncio.sleep(3600)` advances it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rink.session import Session
from rink.testing.virtual_clock import VirtualClock
from rink.testing.virtual_loop import VirtualLoop

T = TypeVar("T")


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
        """Return the virtual time, in seconds."""
        return self.clock.now()

    def advance(self, seconds: float) -> None:
        """Advance the time, and return when all threads are idle."""
        self.clock.advance(seconds)

    def settle(self) -> None:
        """Deliver messages until all threads are idle, without moving the clock."""
        self.clock.settle()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine as `asyncio.run` does, in virtual time.

        Time stands still during a call of `asyncio.to_thread`, but not while another thread of the
        test works.
        """
        with asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock)) as runner:
            return runner.run(coroutine)

    def close(self) -> None:
        """Close every session, even if a failed test still holds roles."""
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
