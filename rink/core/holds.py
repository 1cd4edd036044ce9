"""The roles that user code of this process holds, holds on to, and waits for.

One `Table` per member, shared between the engine and callers: every method is short, calls no
scheme and no user code, and is called with the engine's lock held. A role is in one of two states
here, and a `Hold` never leaves the second:

    held   ─ lost (a newer version, the session's end, leaving) →  lost, until its last handle goes
    held   ─ its last handle goes →  nothing is kept

A new grant of a role waits until the handles of an earlier, lost grant of it are released.
"""

from __future__ import annotations

from typing import Any

import attrs

from rink.core.claims import Gate, closed
from rink.core.values import Share


@attrs.define(eq=False)
class Hold:
    """One grant of one role, shared by all its handles in this process.

    `signal` is whatever the face wants set when the role is lost; the core only carries it.
    """

    role: str
    token: int
    version: int
    share: Share
    handles: int = 1
    lost_at: float | None = None
    lost_because: str = ""
    given_up: bool = False
    reported: bool = False
    signal: Any = None


@attrs.define(eq=False)
class Wait:
    """Somebody waits for a role; `hold` is set when it is granted, with a handle counted.

    `refused` is set instead where nobody can ever be granted it.
    """

    role: str
    signal: Any = None
    hold: Hold | None = None
    refused: Exception | None = None


@attrs.define(eq=False)
class Table:
    """What this process holds, drains and waits for, and the gate for more."""

    gate: Gate = attrs.field(factory=lambda: closed("the group has not been joined yet"))
    deadline: float = float("-inf")
    held: dict[str, Hold] = attrs.field(factory=dict)
    lost: dict[str, Hold] = attrs.field(factory=dict)
    waits: dict[str, list[Wait]] = attrs.field(factory=dict)

    def take(self, gate: Gate, role: str, now: float) -> Hold | None:
        """Count one more handle of a role that `gate` says is mine and free, if that still holds.

        The checks of R2 that are left for the lock: the gate is the published one, the clock is
        before the deadline, and no handle of an earlier, lost grant is unreleased.
        """
        if role in self.held:
            return self.join(role, now)
        if gate is not self.gate or gate.share is None or now >= self.deadline:
            return None
        if role in self.lost:
            return None
        hold = self.held[role] = Hold(role, gate.token, gate.version, gate.share)
        return hold

    def join(self, role: str, now: float) -> Hold | None:
        """Count one more handle of a role that is held already.

        This needs no open gate: the claim that covers the first handle covers the second, and is
        not withdrawn before both are released.
        """
        hold = self.held.get(role)
        if hold is None or now >= self.deadline:
            return None
        hold.handles += 1
        return hold

    def release(self, hold: Hold) -> bool:
        """Let go of one handle; true where the engine must hear of it (the role was lost)."""
        assert hold.handles > 0, f"role {hold.role!r} released more often than it was taken"
        hold.handles -= 1
        if hold.handles:
            return False
        if hold.lost_at is None:
            del self.held[hold.role]
            return False
        del self.lost[hold.role]
        return True

    def lose(self, hold: Hold, now: float, because: str) -> None:
        """Mark a held role as lost."""
        del self.held[hold.role]
        self.lost[hold.role] = hold
        hold.lost_at = now
        hold.lost_because = because

    def want(self, wait: Wait) -> None:
        """Add a waiter."""
        self.waits.setdefault(wait.role, []).append(wait)

    def withdraw(self, wait: Wait) -> Hold | None:
        """Take a waiter back; returns the hold it was granted if that came first."""
        waiting = self.waits.get(wait.role, [])
        if wait in waiting:
            waiting.remove(wait)
            if not waiting:
                del self.waits[wait.role]
        return wait.hold

    def grant(self, role: str, now: float) -> list[Wait]:
        """Give a role of the open gate to everyone here who waits for it."""
        hold = self.take(self.gate, role, now)
        if hold is None:
            return []
        waiting = self.waits.pop(role)
        hold.handles += len(waiting) - 1
        for wait in waiting:
            wait.hold = hold
        return waiting

    def refuse(self, role: str, error: Exception) -> list[Wait]:
        """End every wait for a role that has no rank."""
        waiting = self.waits.pop(role)
        for wait in waiting:
            wait.refused = error
        return waiting

    @property
    def draining(self) -> list[Hold]:
        """Lost roles whose handles are not released and whose claim has not been given up."""
        return [hold for hold in self.lost.values() if not hold.given_up]

    @property
    def roles(self) -> set[str]:
        """Every role that a step may have to place."""
        return self.held.keys() | self.lost.keys() | self.waits.keys()
