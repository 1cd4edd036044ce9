"""`status()`: one frozen value that the command line, the sidecar and tests all read.

What anybody can read in etcd is its base, `rink.inspect.group_status.GroupStatus`, which the command line shows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import attrs

from rink.core.member import Node
from rink.engine.clock import Clock
from rink.inspect.group_status import GroupStatus, MemberStatus, seen

NO_LOCK = contextlib.nullcontext()

__all__ = ["MemberStatus", "Status", "status_of"]


@attrs.frozen
class Status(GroupStatus):
    """A group as one member sees it, and what that member alone knows.

    `not_ranked` says why this member has no rank, and when the group grows for it; it is empty if
    it has one, or does not wait for one. `leaving` says what this member's leave waits for and how
    long at most; it is empty if the member stays. `held` maps role to fencing token. `waiting_for`
    maps a role that somebody here waits for to who is in the way and why. `draining` lists roles
    lost here whose handles are not released. `overruns` counts roles that were not released in
    their `grace`, or before the member was gone. `next_change_at` is the wall-clock time at which
    the coordinator changes the ranks if nothing happens before, None where there is none (`stagger`
    waits for the group to settle) and on all others. `next_change_because` says who waits for which
    delay. `session_remaining` is the seconds until the deadline, negative once it has passed.
    `grants_resume_in` is above 0 where this member has found another history of etcd than before:
    for so many seconds it grants nothing.
    """

    me: str
    rank: int | None
    not_ranked: str
    leaving: str
    held: Mapping[str, int]
    waiting_for: Mapping[str, str]
    draining: tuple[str, ...]
    overruns: int
    next_change_at: str | None
    next_change_because: str
    session_remaining: float
    grants_resume_in: float
    last_error: str
    life: str


def status_of(
    node: Node, group: str, clock: Clock, lock: AbstractContextManager[object] = NO_LOCK
) -> Status:
    """Put a node's status together.

    Under the engine's lock it only copies: a process may wait for 100,000 roles.

    Args:
        node: the member's.
        group: the group's name.
        clock: the engine's.
        lock: the engine's, unless the caller holds it.
    """
    table = node.table
    with lock:
        now, upcoming, view, owned = clock.now(), node.upcoming, node.view, node.owned
        waits = list(table.waits)
        obstacles = node.hold_obstacles(frozenset(table.lost), now)
        fields: dict[str, Any] = {
            "rank": node.rank,
            "held": {role: hold.token for role, hold in table.held.items()},
            "draining": [hold.role for hold in table.draining],
            "overruns": table.overruns,
            "session_remaining": node.member_lease.deadline - now,
            "grants_resume_in": max(0.0, node.view_state.history.grants_from - now),
            "last_error": node.out.last_error,
            "life": node.living.state.value,
            "leaving": node.living.doing(now),
            "not_ranked": obstacles.not_ranked,
        }
    change_at = upcoming.at if upcoming else None
    fields["draining"] = tuple(sorted(fields["draining"]))
    return Status(
        **attrs.asdict(seen(view, group, owned), recurse=False),
        **fields,
        me=node.name,
        waiting_for={role: obstacles.obstacle(role, node.placement) for role in waits},
        next_change_at=None if change_at is None else clock.wall(max(0.0, change_at - now)),
        next_change_because=upcoming.because if upcoming else "",
    )
