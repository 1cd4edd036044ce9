"""Explain why this member does not hold a role now."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from rink.core.claims import Gate
from rink.core.grants import NOT_RANKED
from rink.core.observed_times import ObservedTimes
from rink.core.placement import Placement
from rink.core.ranks import STARTED, RankSettings, growth_due
from rink.core.values import Version
from rink.core.view import View, owner_of


def grows(whom: str, when: str) -> str:
    """Return a text that says when a waiting member gets a rank."""
    return f"the group grows for {whom} {when}, or at once if another member leaves"


def why_not_ranked(view: View, observed_times: ObservedTimes, name: str, now: float) -> str:
    """Return why a member has no rank yet, and when the group grows for it.

    The member computes the time itself, by the settings in the coordinator's record. It counts each
    delay from the time when it first saw the waiting member, or the start of the group.
    """
    member, coordinator = view.members.get(name), view.coordinator
    if member is None or member.record is None or coordinator is None or not coordinator.record:
        return NOT_RANKED
    first_seen = observed_times.first_seen.get((name, member.create_revision))
    if first_seen is None:
        return NOT_RANKED
    leads_by = coordinator.record.leads_by
    settings = RankSettings(
        rebalance_delay=coordinator.record.rebalance_delay,
        initial_delay=leads_by.get("initial_delay") or 0.0,
    )
    own_delay = member.record.rebalance_delay
    at, setting, delay = growth_due(first_seen, own_delay, observed_times.started_at, settings)
    if at > now:
        when = f"in about {at - now:.0f} s ({setting}={delay:g})"
        text = grows("this member", when)
        # This member joined after the start, so it does not know how long ago the start was.
        saw_start, version = observed_times.started_at is not None, view.version
        is_start = not saw_start and version is not None and STARTED in version.because
        sooner = "; sooner if the group has only just started" if is_start else ""
        return f"{NOT_RANKED}: {text}{sooner}"
    stagger = leads_by.get("stagger")
    turn = f"once the group is settled (stagger: {stagger:g} at a time)" if stagger else "next"
    ranks = f"{coordinator.name!r} ranks this member {turn}"
    return f"{NOT_RANKED}: {setting}={delay:g} is over, so {ranks}"


@attrs.frozen
class HoldObstacles:
    """Hold what kept roles from one member at one moment.

    It is copied under the lock, and read without it. `lost` has the roles that this member lost and
    has not released. `not_ranked` says why this member has no rank and when the group grows for it,
    or is "".
    """

    name: str
    gate: Gate
    version: Version | None
    lost: Collection[str]
    not_ranked: str

    def obstacle(self, role: str, placement: Placement) -> str:
        """Return the member that keeps this one from holding a role, and why.

        That is the role's owner, or a member that still claims it. This may call the scheme, so
        hold no lock.
        """
        if self.gate.closed_because == NOT_RANKED:
            return self.not_ranked
        if self.gate.closed_because:
            return self.gate.closed_because
        if role in self.lost:
            return f"{self.name}: an earlier grant of it was lost, and is not released here yet"
        owner = owner_of(self.version, role, placement.rank) if self.version else None
        if owner != self.name:
            return f"{owner}: owns it in version {self.gate.version}"
        obstacle = self.gate.obstacle(role, placement)
        return obstacle or "nothing is in the way; it has not been granted yet"
