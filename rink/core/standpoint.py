"""Say why a role is not held here now.

`RoleTimeout`, `status()` and the log use this.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from rink.core.chronicle import Chronicle
from rink.core.claims import Gate
from rink.core.grants import NOT_RANKED
from rink.core.placement import Placement
from rink.core.ranks import STARTED, Settings, growth_due
from rink.core.values import Version
from rink.core.view import View, owner_of


def grows(whom: str, when: str) -> str:
    """Return when the group grows for a member that waits for a rank."""
    return f"the group grows for {whom} {when}, or at once if another one leaves"


def why_not_ranked(view: View, chronicle: Chronicle, name: str, now: float) -> str:
    """Return when the group grows for a member that waits for a rank.

    It is the member's own bound: the coordinator's settings are those of its record, and times are
    when this member first saw what it sees.
    """
    member, coordinator = view.members.get(name), view.coordinator
    if member is None or member.record is None or coordinator is None or not coordinator.record:
        return NOT_RANKED
    first_seen = chronicle.first_seen.get((name, member.create_revision))
    if first_seen is None:
        return NOT_RANKED
    leads_by = coordinator.record.leads_by
    settings = Settings(
        rebalance_delay=coordinator.record.rebalance_delay,
        initial_delay=leads_by.get("initial_delay") or 0.0,
    )
    own_delay = member.record.rebalance_delay
    at, setting, delay = growth_due(first_seen, own_delay, chronicle.started_at, settings)
    if at > now:
        when = f"in about {at - now:.0f} s ({setting}={delay:g})"
        text = grows("this member", when)
        # This member came after the start, so it does not know how long ago that was.
        is_start = chronicle.started_at is None and view.version and STARTED in view.version.because
        sooner = "; sooner if the group has only just started" if is_start else ""
        return f"{NOT_RANKED}: {text}{sooner}"
    stagger = leads_by.get("stagger")
    turn = f", {stagger:g} at a time (stagger), once the group is settled" if stagger else " next"
    return f"{NOT_RANKED}: {setting}={delay:g} is over, so {coordinator.name!r} ranks it{turn}"


@attrs.frozen
class Standpoint:
    """Hold what one member knew at one moment.

    It is copied under the lock, and read without it.

    `lost` are the roles that were lost here and are not released; `not_ranked` says when the group
    grows for this member, if it has no rank.
    """

    name: str
    gate: Gate
    version: Version | None
    lost: Collection[str]
    not_ranked: str

    def obstacle(self, role: str, placement: Placement) -> str:
        """Return who owns a role, or who is in the way and why.

        The scheme may be called: hold no lock.
        """
        if self.gate.closed_because == NOT_RANKED:
            return self.not_ranked
        if self.gate.closed_because:
            return self.gate.closed_because
        if role in self.lost:
            return f"{self.name}: an earlier grant of it, which was lost, is not released here yet"
        owner = owner_of(self.version, role, placement.rank) if self.version else None
        if owner != self.name:
            return f"{owner}: owns it in version {self.gate.version}"
        return self.gate.obstacle(role, placement) or "it has just been asked for"
