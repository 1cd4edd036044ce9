"""`status()`: one frozen value that the command line, the sidecar and tests all read.

What anybody can read in etcd is its base, `rink.seen.GroupStatus`, which the command line shows.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rink.core.node import Node
from rink.core.view import owner_of
from rink.engine.clock import Clock
from rink.seen import GroupStatus, MemberStatus, seen

__all__ = ["MemberStatus", "Status", "obstacle", "status_of"]


@attrs.frozen
class Status(GroupStatus):
    """A group as one member sees it, and what that member alone knows.

    `held` maps role to fencing token; `waiting_for` maps a role that somebody here waits for to who
    is in the way and why; `draining` lists roles lost here whose handles are not released;
    `overruns` counts roles that were not released in their `grace`, or before the member was gone;
    `next_change_at` is the wall-clock time at which the coordinator changes the ranks if nothing
    happens before, None where there is none (`stagger` waits for the group to settle) and on all
    others;
    `next_change_because` says who waits for which delay; `session_remaining` seconds until the
    deadline, negative once it has passed. `grants_resume_in` is above 0 where this member has found
    another history of etcd than before: for so many seconds it grants nothing.
    """

    me: str
    rank: int | None
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


def status_of(node: Node, group: str, clock: Clock) -> Status:
    """Put a node's status together; the caller holds the engine's lock."""
    now, upcoming = clock.now(), node.upcoming
    change_at = upcoming.at if upcoming else None
    return Status(
        **attrs.asdict(seen(node.view, group, node.owned), recurse=False),
        me=node.name,
        rank=node.rank,
        held={role: hold.token for role, hold in node.table.held.items()},
        waiting_for={role: obstacle(node, role) for role in node.table.waits},
        draining=tuple(sorted(hold.role for hold in node.table.draining)),
        overruns=node.table.overruns,
        next_change_at=None if change_at is None else clock.wall(max(0.0, change_at - now)),
        next_change_because=upcoming.because if upcoming else "",
        session_remaining=node.tenure.deadline - now,
        grants_resume_in=max(0.0, node.sight.history.grants_from - now),
        last_error=node.out.last_error,
        life=node.living.state.value,
    )


def obstacle(node: Node, role: str) -> str:
    """Return why a role is not held here now.

    It says who owns it, or who is in the way and why.
    """
    gate = node.table.gate
    if gate.closed_because:
        return gate.closed_because
    if role in node.table.lost:
        return f"{node.name}: an earlier grant of it, which was lost, is not released here yet"
    version = node.view.version
    if version and role not in node.placement.ranks(version.scheme, len(version.ranks)):
        return "it has just been asked for"  # the next step places it: not under the lock (R2)
    owner = owner_of(version, role, node.placement.rank) if version else None
    if owner != node.name:
        return f"{owner}: owns it in version {gate.version}"
    return gate.obstacle(role, node.placement)
