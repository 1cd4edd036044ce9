"""End the waits of a member that leaves: nothing will be granted to it any more."""

from __future__ import annotations

import threading

from rink.core.holds import Table
from rink.engine.clock import Clock

END_DELAY_S = 0.1
"""Time until the waits end, so that the holders run first; short beside the shortest TTL, 2 s."""


class LastWaits:
    """End the waits of one member.

    The holders of roles must release them, and other members wait for that. So threads that only
    wait are not woken at the same moment. But a thread that waits inside the body of a role cannot
    release that role before, so its wait ends at once.
    """

    def __init__(self, table: Table, lock: threading.RLock, clock: Clock) -> None:
        self._table = table
        self._lock = lock
        self._clock = clock
        self.end_at: float | None = None

    def schedule(self) -> None:
        """End the waits inside of a role now, and the others after `END_DELAY_S`."""
        table, waits = self._table, self._table.waits
        if self.end_at is not None or not waits:
            return
        with self._lock:
            holds = [*table.held.values(), *table.lost.values()]
            inside = {handle.by for hold in holds for handle in hold.handles} - {None}
            blocked = [
                handle for waiting in waits.values() for handle in waiting if handle.by in inside
            ]
            for handle in blocked:
                waits.discard(handle)
            if waits:
                self.end_at = self._clock.now() + END_DELAY_S
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
