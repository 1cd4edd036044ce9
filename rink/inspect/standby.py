"""Compute who would take a role over if its owner went, by the coordinator's own plan.

For whoever shows it, beside the owner: workers of partitions, say, where there are more of them
than partitions. A pure function of a status, which anybody can have.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial

import attrs

from rink.core.placement import Placement
from rink.core.ranks import Candidate, RankSettings, Situation, plan
from rink.core.schemes import follows
from rink.core.values import Phase, Version
from rink.core.view import owner_of
from rink.inspect.group_status import UNREADABLE, GroupStatus, MemberStatus


@attrs.frozen
class Standby:
    """A role's owner, and who would have it next if just that member were gone for good.

    `owner` is None while nobody is ranked, or where the group's scheme is not known in this
    process; `next` is None where nobody else is there to take over.
    """

    owner: str | None
    next: str | None


def standbys(status: GroupStatus, roles: Iterable[str]) -> dict[str, Standby]:
    """Return each role's owner and standby, in the order of the roles.

    Where nobody waits for a rank, the group's `leave_delay` passes before the standby has the role;
    it is taken as over here. So is `stagger`, which never keeps back the roles of the dead.

    Args:
        status: of the group: `Rink.status()`, or what the command line reads.
        roles: such as `orders/0` to `orders/7`, lowest partition first.
    """
    rank_of = Placement().rank
    now = _version(status, status.ranks)
    after = cache(partial(_without, status))
    found = {}
    for role in roles:
        owner = owner_of(now, role, rank_of)
        heir = None if owner is None else owner_of(after(owner), role, rank_of)
        found[role] = Standby(owner, None if heir == owner else heir)
    return found


def _without(status: GroupStatus, gone: str) -> Version:
    """Return the version that would follow if one member were gone.

    Its delays are over.
    """
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
        rebalance_delay=float("inf"),  # that others join as well is another event
        phase=Phase.ACTIVE if member.phase == UNREADABLE else Phase(member.phase),
        can_follow=member.phase != UNREADABLE and follows(member.schemes, scheme),
    )


def _version(status: GroupStatus, ranks: tuple[str, ...]) -> Version:
    return Version(status.version, ranks, status.scheme, status.pins)
