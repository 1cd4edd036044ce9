"""Stop a partition if the program is to blame for its failures. Pure."""

from __future__ import annotations

from collections import deque

from rink.plural import plural

LAST = 100
"""The number of remembered outcomes of events."""


class CircuitBreaker:
    """Remember the outcomes of the last events of one owner's partition.

    The outcomes are not kept in Redis, so the next owner starts to count again. It takes minutes to
    give up an event, so an owner that is soon replaced has given up few events.

    Args:
        limit: this many failures in a row trip the breaker; None switches it off.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._ends: deque[str] = deque(maxlen=LAST)  # "" for a success, otherwise the error
        self._passed = 0

    def room(self, passed: int) -> int | None:
        """Return how many more failures in a row trip it, or None if off."""
        self._note_passed(passed)
        return None if self._limit is None else self._limit - self._in_a_row()

    def note(self, passed: int, error: str) -> str:
        """Note a failed event after `passed` processed events.

        Returns:
            The reason to quarantine the partition instead of giving the event up; "" for none.
        """
        self._note_passed(passed)
        self._ends.append(error)
        if self._limit is None:
            return ""
        row, dead = self._in_a_row(), [end for end in self._ends if end]
        if row >= self._limit:
            return f"{row} {plural(row, 'event')} in a row failed, the first: {self._ends[-row]}"
        if len(dead) * 2 >= LAST:
            return f"{len(dead)} of the last {len(self._ends)} events failed, the first: {dead[0]}"
        return ""

    def _note_passed(self, passed: int) -> None:
        if passed > self._passed:
            self._ends.extend([""] * min(passed - self._passed, LAST))
            self._passed = passed

    def _in_a_row(self) -> int:
        row = 0
        for end in reversed(self._ends):
            if not end:
                break
            row += 1
        return row
