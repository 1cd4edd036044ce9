"""Estimate when the group grows for a waiting member, from its keys.

The coordinator counts a member's delay from the time when it first saw the member's record. The
delay is the member's `rebalance_delay`. For members that came while the group was starting, it is
the coordinator's `initial_delay`. Only a coordinator that saw the start knows its time
(`rink.core.ranks`).
"""

from __future__ import annotations

import math
from typing import Any

import attrs

from rink.cli.holding_since import seconds_between
from rink.core.member_record import MemberRecord
from rink.core.ranks import STARTED, RankSettings, growth_due
from rink.core.values import Member, Version
from rink.core.view import View
from rink.core.why_not_held import grows
from rink.inspect.group_status import GroupStatus, MemberStatus


@attrs.frozen
class Growth:
    """Hold the latest time at which the group grows for a waiting member.

    If another member leaves earlier, the waiting member takes its rank at once.

    `within_s` compares the member's clock with this machine's. It is 0 after the delay, and None
    if the two clocks disagree. `may_be_sooner` means that the coordinator may count its
    `initial_delay` instead.
    """

    setting: str
    delay_s: float
    within_s: float | None
    may_be_sooner: bool = False

    def text(self) -> str:
        """Return the time and its cause in words."""
        setting = f"{self.setting}={self.delay_s:g}"
        if self.within_s:
            when = f"in about {self.within_s:.0f} s, by its clock ({setting})"
        else:
            when = f"as soon as its delay is over ({setting})"
        sooner = "; sooner if the group has only just started" if self.may_be_sooner else ""
        return grows("it", when) + sooner

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**attrs.asdict(self), "text": self.text()}


def is_waiting(member: MemberStatus) -> bool:
    """Return whether a member has no rank, and may get one."""
    return member.phase == "active" and member.rank is None and not member.no_rank_because


def growth(view: View, status: GroupStatus, wall: str) -> dict[str, Growth]:
    """Return when the group grows for each waiting member, oldest first.

    `wall` is this machine's wall clock.
    """
    records = {
        member.name: record
        for member in status.members
        if is_waiting(member) and (record := view.members[member.name].record) is not None
    }
    start = _Start.of(view)
    return {name: _growth(record, start, wall) for name, record in records.items()}


@attrs.frozen
class _Start:
    """Hold the facts in the keys about the group's last start from empty.

    `version` is the version of the start, or None if etcd no longer keeps it. `is_to_come` means
    that there is no version yet.
    """

    coordinator: Member | None
    version: Version | None
    is_to_come: bool

    @classmethod
    def of(cls, view: View) -> _Start:
        """Read the start from a group's keys."""
        kept = [entry.version for _, entry in sorted(view.versions.items()) if entry.version]
        started = next((version for version in reversed(kept) if STARTED in version.because), None)
        return cls(view.coordinator, started, not view.versions)

    def seconds_after(self, record: MemberRecord) -> float | None:
        """Return the seconds from a member's join to the start.

        The result is infinite if the start is to come, or if the times cannot be compared. None
        means that the keys show no start.
        """
        if self.version is None:
            return math.inf if self.is_to_come else None
        seconds = seconds_between(record.joined, self.version.proclaimed)
        return math.inf if seconds is None else seconds

    @property
    def is_known(self) -> bool:
        """Return whether the coordinator knows the time of the start.

        It knows the time if it proclaimed the version in its current session, or will proclaim it.
        Both times are by its own clock. An earlier session under the same name does not count.
        """
        if self.version is None or self.coordinator is None or self.coordinator.record is None:
            return self.is_to_come
        since = seconds_between(self.coordinator.record.joined, self.version.proclaimed)
        return self.version.by == self.coordinator.name and since is not None and since >= 0


def _growth(record: MemberRecord, start: _Start, wall: str) -> Growth:
    delay = record.rebalance_delay
    usual = Growth("rebalance_delay", delay, _left(record, delay, wall))
    if start.coordinator is None or start.coordinator.record is None:
        return usual
    coordinator = start.coordinator.record
    initial = coordinator.leads_by.get("initial_delay")
    settings = RankSettings(coordinator.rebalance_delay, initial or 0.0)
    started_at = start.seconds_after(record)
    _, setting, value = growth_due(0.0, delay, started_at, settings)  # counted from the join
    if setting == usual.setting:
        return usual
    is_told = start.is_to_come or started_at != math.inf
    if initial is None or not is_told or not start.is_known:
        return attrs.evolve(usual, may_be_sooner=True)
    return Growth(setting, value, _left(record, value, wall))


def _left(record: MemberRecord, delay: float, wall: str) -> float | None:
    """Return the seconds left of a delay, or None if the clocks disagree."""
    waited = seconds_between(record.joined, wall)
    if waited is None or waited < 0:
        return None
    return round(max(delay - waited, 0.0), 3)
