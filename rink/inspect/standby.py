"""Compute who would take over a role if its owner were gone.

This applies the coordinator's own plan to a status, so it needs only the group's keys. It is shown
beside the owner, for example for partitions with more workers than partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial

import attrs

from rink.core.member_record import Phase
from rink.core.placement import Placement
from rink.core.ranks import Candidate, RankSettings, Situation, plan
from rink.core.schemes import follows
from rink.core.values import Version
from rink.core.view import owner_of
from rink.inspect.group_status import UNREADABLE, GroupStatus, MemberStatus


@attrs.frozen
class Standby:
    """Hold a role's owner, and its next owner if that member were gone.

    `owner` is None while nobody is ranked, or if the group's scheme is unknown in this process.
    `next` is None if no other member could take over.
    """

    owner: str | None
    next: str | None


def standbys(status: GroupStatus, roles: Iterable[str]) -> dict[str, Standby]:
    """Return each role's owner and standby, in the order of the roles.

    If nobody waits for a rank, the group's `leave_delay` passes before the standby gets the role.
    This computes the owner after that delay. `stagger` is ignored, since it never keeps back the
    roles of dead members.
    """
    rank_of = Placement().rank
    now = _version(status, status.ranks)
    after = cache(partial(_without, status))
    standby_of = {}
    for role in roles:
        owner = owner_of(now, role, rank_of)
        heir = None if owner is None else owner_of(after(owner), role, rank_of)
        standby_of[role] = Standby(owner, None if heir == owner else heir)
    return standby_of


def _without(status: GroupStatus, gone: str) -> Version:
    """Return the version after all delays if one member were gone."""
    members = [
        _candidate(member, age, status.scheme)
        for age, member in enumerate(status.members)  # oldest first
        if member.name != gone
    ]
    planned = plan(Situation(status.ranks, members), 0.0, RankSettings(leave_delay=0.0))
    return _version(status, planned.ranks)


def _candidate(member: MemberStatus, age: int, scheme: str) -> Candidate:
    return Candidate(
        name=member.name,
        create_revision=age,
        first_seen=0.0,
        rebalance_delay=float("inf"),  # no other member joins at the same time
        phase=Phase.ACTIVE if member.phase == UNREADABLE else Phase(member.phase),
        can_follow=member.phase != UNREADABLE and follows(member.schemes, scheme),
    )


def _version(status: GroupStatus, ranks: tuple[str, ...]) -> Version:
    return Version(status.version, ranks, status.scheme, status.pins)
