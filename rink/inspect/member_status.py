"""Build the value that a member's `status()` returns.

The sidecar and tests read it, too. Its base `rink.inspect.group_status.GroupStatus` has the part
that anybody can read in etcd, which the command line shows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import attrs

from rink.core.member import Node
from rink.engine.clock import Clock
from rink.inspect.group_status import GroupStatus, MemberStatus, status_of_view

NO_LOCK = contextlib.nullcontext()

__all__ = ["MemberStatus", "Status", "status_of"]


@attrs.frozen
class Status(GroupStatus):
    """Show a group as one member sees it, and that member's own state.

    `not_ranked` says why this member has no rank, and when the group grows for it. It is empty if
    the member has a rank, or does not wait for one. `leaving` says what this member's leave waits
    for, and how long at most. It is empty if the member stays.

    `held` maps each role to its fencing token. `waiting_for` maps each role that is awaited here to
    the member in the way, and why. `draining` lists roles that are lost here and not released.
    `overruns` counts roles that were not released within `grace`, or before the member was gone.

    `next_change_at` is the wall-clock time at which the coordinator changes the ranks if nothing
    happens before. It is None if no change is planned, if `stagger` waits for the group to settle,
    and on all other members. `next_change_because` says which member waits for which delay.

    `session_remaining` is the seconds until the deadline, and negative after it. `grants_resume_in`
    is above 0 if this member has found another history of etcd. It grants nothing for so many
    seconds.
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
    """Return the status of a member.

    This only copies under the engine's lock, since a process may wait for 100,000 roles.
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
        **attrs.asdict(status_of_view(view, group, owned), recurse=False),
        **fields,
        me=node.name,
        waiting_for={role: obstacles.obstacle(role, node.placement) for role in waits},
        next_change_at=None if change_at is None else clock.wall(max(0.0, change_at - now)),
        next_change_because=upcoming.because if upcoming else "",
    )
