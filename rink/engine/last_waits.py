"""End the waits of a member that leaves and is granted nothing more."""

from __future__ import annotations

import itertools
import threading

from rink.core.holds import Table
from rink.engine.clock import Clock

END_DELAY_S = 0.1
"""Delay of the end, so that the holders run first. It is short against the shortest TTL, 2 s."""


class LastWaits:
    """End the waits of one member.

    Other members wait until the holders of roles release them. So threads that only wait are woken
    later than the holders. But a thread that waits inside the body of a role cannot release that
    role before its wait is over, so its wait ends at once.
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
            waiting = itertools.chain.from_iterable(waits.values())
            blocked = [handle for handle in waiting if handle.by in inside]
            for handle in blocked:
                waits.discard(handle)
            if waits:
                self.end_at = self._clock.now() + END_DELAY_S
        for handle in blocked:
            handle.signal.set()

    def end_if_due(self) -> None:
        """End all waits if the delay is over."""
        if self.end_at is not None and self._clock.now() >= self.end_at:
            self.end_at = None
            self.end()

    def end(self) -> None:
        """End every wait, without a role."""
        with self._lock:
            handles = self._table.waits.clear()
        for handle in handles:
            handle.signal.set()
