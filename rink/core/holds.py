"""Keep the roles that user code holds, has not released, or awaits.

One `Table` per member is shared between the engine and callers. Every method is short, calls no
scheme and no user code, and is called with the engine's lock held. A granted role is in one of two
states, and a `Hold` never leaves the second:

    state | event                                              | next state
    ------|----------------------------------------------------|----------------------------
    held  | lost: a newer version, the session's end, a leave  | lost, and its handles drain
    held  | its last handle is released                        | nothing is kept
    lost  | its last handle is released                        | nothing is kept

Invariants, whenever the lock is free:

* A role has at most one `Hold`: `held` and `lost` have no role in common. `take` grants only a role
  that is in neither, and `lose` moves the hold from one to the other. So a role is granted anew
  only when the handles of its lost grant are released.
* Each `Hold` has a handle, because `release` removes a hold together with its last handle.
* Each role here was placed by the last step, or is in `unplaced`, because the methods that add a
  role (`take`, `want`) put it there.
"""

from __future__ import annotations

from types import CodeType
from typing import Any

import attrs

from rink.core.claims import Gate, closed
from rink.core.member_record import Share
from rink.core.waits import Waits

CodePlace = tuple[CodeType, int]
"""A place in user code: a code object, and the offset of an instruction in it.

Every grant notes a place, so it must cost next to nothing. `made_by` looks up the line later.
"""


@attrs.define(eq=False)
class Handle:
    """Hold one user's part in a role, from the wait to the release.

    A handle waits for a grant, has a grant in `hold`, or is released. It exists before the table
    knows it, because a signal handler may raise between any two steps on a user's thread. So its
    release can undo any part of the steps.

    `signal` is set when the wait is over, and `lost` when the role is lost or the handle is
    released. The core only carries both. `made_at` is the place in user code that requested the
    handle (see `made_by`). `refused` says why nobody can ever be granted the role. `by` is a number
    for the requesting thread or asyncio task, since a reference would keep a task alive. A grant to
    this handle has a token greater than `token_above`.
    """

    role: str
    signal: Any = None
    made_at: CodePlace | None = None
    lost: Any = None
    hold: Hold | None = None
    refused: Exception | None = None
    by: int | None = None
    token_above: int = 0


@attrs.define(eq=False)
class Hold:
    """Hold one grant of one role, shared by all its handles in this process.

    `is_awaited` says that user code waited for it. The other grants are logged only at DEBUG.
    """

    role: str
    token: int
    version: int
    share: Share
    handles: set[Handle] = attrs.field(factory=set)
    granted_at: float = 0.0
    is_awaited: bool = False
    lost_at: float | None = None
    lost_because: str = ""
    given_up: bool = False
    reported: bool = False


def made_by(handle: Handle) -> str:
    """Return the file and line that requested a handle, or "" if unknown."""
    if handle.made_at is None:
        return ""
    code, at = handle.made_at
    lines = [line for start, end, line in code.co_lines() if start <= at < end]
    return f"{code.co_filename}:{lines[0] if lines else code.co_firstlineno}"


@attrs.define(eq=False)
class Table:
    """Keep the roles that are held, lost or awaited, and the gate.

    `unplaced` are the roles that are new since a step last placed every role
    (`rink.core.scheme_prefetch`). `is_offered` says that the member offers its rank, and serves
    only while it `is_used`. `overruns` counts roles that user code had not released in time: within
    `grace`, or when leaving. `token_above` is the greatest `token_above` of all handles that have
    begun to wait since the last step.
    """

    gate: Gate = attrs.field(factory=lambda: closed("the group has not been joined yet"))
    deadline: float = float("-inf")
    held: dict[str, Hold] = attrs.field(factory=dict)
    lost: dict[str, Hold] = attrs.field(factory=dict)
    waits: Waits[Handle] = attrs.field(factory=Waits)
    unplaced: set[str] = attrs.field(factory=set)
    is_offered: bool = False
    overruns: int = 0
    token_above: int = 0

    @property
    def is_used(self) -> bool:
        """Return whether user code holds a role, or waits for one."""
        return bool(self.held or self.waits)

    def take(self, gate: Gate, handle: Handle, now: float) -> Hold | None:
        """Give a handle its role if the role is still mine and free.

        The caller has checked both by `gate`, without the lock. Four checks of R2 are left for the
        lock: the gate is the published one, the clock is before the deadline, every handle of a
        lost grant of the role is released, and the gate's token is high enough for the handle.
        """
        role = handle.role
        if role in self.held:
            return self.join(handle, now)
        if gate is not self.gate or gate.share is None or now >= self.deadline:
            return None
        if role in self.lost or gate.token <= handle.token_above:
            return None
        self.unplaced.add(role)
        hold = Hold(role, gate.token, gate.version, gate.share, {handle}, now)
        handle.hold = hold
        self.held[role] = hold
        return hold

    def join(self, handle: Handle, now: float) -> Hold | None:
        """Give a handle its role if the role is held already.

        This needs no open gate. The claim that covers the first handle covers the second, and is
        not withdrawn before both are released.
        """
        hold = self.held.get(handle.role)
        if hold is None or now >= self.deadline or hold.token <= handle.token_above:
            return None
        handle.hold = hold
        hold.handles.add(handle)
        return hold

    def release(self, handle: Handle) -> bool:
        """Release a handle; return whether a step must follow.

        The handle may wait, have a hold, or have neither. Releasing twice does nothing. A step must
        follow if the last handle of the role is released and one of these holds:

        * The role was lost: its claim can be withdrawn.
        * Another handle waits for the role with a greater token.
        * The gate is closed, perhaps because a newcomer is to have the role.

        A step must also follow if the offered rank is not used any more.
        """
        role, hold = handle.role, handle.hold
        if hold is None:
            self.waits.discard(handle)
            self._forget(role)
            return self.is_offered and not self.is_used
        hold.handles.discard(handle)
        if hold.handles:
            return False
        if self.held.get(role) is hold:
            del self.held[role]
        elif self.lost.get(role) is hold:
            del self.lost[role]
        self.waits.try_again(role)
        self._forget(role)
        is_awaited = hold.lost_at is not None or self.gate.share is None or role in self.waits
        return is_awaited or (self.is_offered and not self.is_used)

    def _forget(self, role: str) -> None:
        """Forget that a role is new, if it is not here any more.

        Otherwise `unplaced` would grow with each name that user code requests between two steps.
        """
        if role not in self.held and role not in self.lost and role not in self.waits:
            self.unplaced.discard(role)

    def lose(self, hold: Hold, now: float, because: str) -> None:
        """Mark a held role as lost."""
        del self.held[hold.role]
        self.lost[hold.role] = hold
        hold.lost_at = now
        hold.lost_because = because

    def want(self, handle: Handle) -> None:
        """Add a handle to the handles that wait for its role."""
        self.unplaced.add(handle.role)
        self.waits.add(handle)
        self.token_above = max(self.token_above, handle.token_above)

    def grant(self, role: str, now: float) -> list[Handle]:
        """Give a role of the open gate to the handles that wait for it.

        Return the handles that got it. The others need a greater token.
        """
        waiting = list(self.waits.get(role, []))
        granted = [handle for handle in waiting if self.take(self.gate, handle, now)]
        for handle in granted:
            self.waits.discard(handle)
            self.held[role].is_awaited = True
        return granted

    def refuse(self, role: str, error: Exception) -> list[Handle]:
        """End every wait for a role that has no rank."""
        waiting = self.waits.end(role)
        for handle in waiting:
            handle.refused = error
        return waiting

    @property
    def drains(self) -> bool:
        """Return whether there is a lost role that still has handles and a claim."""
        return any(not hold.given_up for hold in self.lost.values())

    @property
    def draining(self) -> list[Hold]:
        """Return the lost roles that still have handles and a claim."""
        return [hold for hold in self.lost.values() if not hold.given_up]

    @property
    def roles(self) -> set[str]:
        """Return every role that a step may have to place."""
        return self.held.keys() | self.lost.keys() | self.waits.keys()
