"""The waits of a member that leaves: when they end, since nothing will be granted any more."""

from __future__ import annotations

import threading

from rink.core.holds import Table
from rink.engine.clock import Clock

AFTER_S = 0.1
"""How long threads that only wait are left asleep; beside a TTL of 2 s, the shortest."""


class LastWaits:
    """End the waits of one member.

    The holders of roles must let go, and others wait for that. So threads that only wait are not
    woken at the same moment. But a thread that waits inside the body of a role cannot let go
    before, so its wait ends at once.
    """

    def __init__(self, table: Table, lock: threading.RLock, clock: Clock) -> None:
        self._table = table
        self._lock = lock
        self._clock = clock
        self.end_at: float | None = None

    def end_soon(self) -> None:
        """Have all waits end in a moment, and those inside of a role now."""
        table, waits = self._table, self._table.waits
        if self.end_at is not None or not waits:
            return
        with self._lock:
            holds = [*table.held.values(), *table.lost.values()]
            inside = {handle.by for hold in holds for handle in hold.handles} - {None}
            blocked = [one for waiting in waits.values() for one in waiting if one.by in inside]
            for handle in blocked:
                waits.discard(handle)
            if waits:
                self.end_at = self._clock.now() + AFTER_S
        for handle in blocked:
            handle.signal.set()

    def end_if_due(self) -> None:
        """End all waits if their time has come."""
        if self.end_at is not None and self._clock.now() >= self.end_at:
            self.end_at = None
            self.end()

    def end(self) -> None:
        """Wake every wait with no role."""
        with self._lock:
            handles = self._table.waits.clear()
        for handle in handles:
            handle.signal.set()
