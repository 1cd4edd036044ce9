"""`status()`: one frozen value that the command line, the sidecar and tests all read."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from rink.core.node import Node
from rink.core.values import Member, Share
from rink.core.view import owner_of
from rink.engine.clock import Clock


@attrs.frozen
class MemberStatus:
    """One member, as its record says; `phase` is "unreadable" where it cannot be read."""

    name: str
    phase: str
    rank: int | None
    version: int
    shares: tuple[Share, ...]
    draining: tuple[str, ...]
    joined: str
    labels: Mapping[str, str]
    address: str = ""
    rebalance_delay: float | None = None


@attrs.frozen
class Status:
    """A group as one member sees it, as of etcd revision `revision`.

    `held` maps role to fencing token; `waiting_for` maps a role that somebody here waits for to who
    is in the way and why; `draining` lists roles lost here whose handles are not released;
    `next_change_at` is the wall-clock time at which the leader changes the ranks if nothing happens
    before, and None on all others; `session_remaining` seconds until the deadline, negative once it
    has passed. `differing` names members whose settings are not this member's, and how.
    """

    group: str
    revision: int
    version: int
    ranks: tuple[str, ...]
    scheme: str
    pins: Mapping[str, str]
    leader: str | None
    settled: bool
    me: str
    rank: int | None
    held: Mapping[str, int]
    waiting_for: Mapping[str, str]
    draining: tuple[str, ...]
    members: tuple[MemberStatus, ...]
    next_change_at: str | None
    next_change_because: str
    session_remaining: float
    last_error: str
    life: str
    differing: Mapping[str, str]


def status_of(node: Node, group: str, clock: Clock) -> Status:
    """Put a node's status together; the caller holds the engine's lock."""
    now = clock.now()
    view, version = node.view, node.view.version
    ranks = version.ranks if version else ()
    wake_at = node.plan_wake_at
    return Status(
        group=group,
        revision=view.revision,
        version=view.newest.number if view.newest else 0,
        ranks=ranks,
        scheme=version.scheme if version else "",
        pins=dict(version.pins) if version else {},
        leader=view.leader.name if view.leader else None,
        settled=node.is_settled,
        me=node.name,
        rank=node.share.rank if node.share else None,
        held={role: hold.token for role, hold in node.table.held.items()},
        waiting_for={role: obstacle(node, role) for role in node.table.waits},
        draining=tuple(sorted(hold.role for hold in node.table.draining)),
        members=members_of(view.by_age, ranks),
        next_change_at=None if wake_at is None else clock.wall(max(0.0, wake_at - now)),
        next_change_because="" if wake_at is None else "a member's delay ends",
        session_remaining=node.tenure.deadline - now,
        last_error=node.out.last_error,
        life=node.living.state.value,
        differing=differing(view.by_age, node.name),
    )


def differing(found: tuple[Member, ...], me: str) -> dict[str, str]:
    """Say which members' settings differ from those of one of them, and how."""
    mine = next((member.record for member in found if member.name == me), None)
    differences: dict[str, str] = {}
    for member in found:
        if mine is None or member.record is None:
            continue
        parts = [
            f"{what}={theirs!r} (here {ours!r})"
            for what in ("ttl", "rebalance_delay", "schemes")
            if (theirs := getattr(member.record, what)) != (ours := getattr(mine, what))
        ]
        if parts:
            differences[member.name] = ", ".join(parts)
    return differences


def members_of(found: tuple[Member, ...], ranks: tuple[str, ...]) -> tuple[MemberStatus, ...]:
    """Describe every live member, oldest first."""
    rank_of = {name: rank for rank, name in enumerate(ranks)}
    return tuple(_member(member, rank_of.get(member.name)) for member in found)


def _member(member: Member, rank: int | None) -> MemberStatus:
    record = member.record
    if record is None:
        return MemberStatus(member.name, "unreadable", rank, 0, (), (), "", {})
    return MemberStatus(
        name=member.name,
        phase=record.phase.value,
        rank=rank,
        version=record.version,
        shares=record.shares,
        draining=record.draining,
        joined=record.joined,
        labels=record.labels,
        address=record.address,
        rebalance_delay=record.rebalance_delay,
    )


def obstacle(node: Node, role: str) -> str:
    """Say why a role is not held here now: who owns it, or who is in the way and why."""
    gate = node.table.gate
    if gate.closed_because:
        return gate.closed_because
    if role in node.table.lost:
        return f"{node.name}: an earlier grant of it, which was lost, is not released here yet"
    version = node.view.version
    owner = owner_of(version, role, node.placement.rank) if version else None
    if owner != node.name:
        return f"{owner}: owns it in version {gate.version}"
    return gate.obstacle(role, node.placement)
