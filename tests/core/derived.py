"""Check each step of a member against everything derived anew.

A member carries much from step to step, so that an event costs only by what has changed. Each such
value is compared here with the value that follows from the same entries, listed anew.
"""

from __future__ import annotations

import copy

from rink.core.janitor import _binding, _suspects
from rink.core.member import Node
from rink.core.next_version import draft, why_unrankable, without_room
from rink.core.placement import Placement
from rink.core.state_tables import Life, Write
from rink.core.unsettled_records import unsettled_in
from rink.core.view import View


class Strict(Placement):
    """In a step it knows what it was asked for before, and nothing else (R2)."""

    stepping = False

    def rank(self, role, scheme, size, *, bounded=True):
        known = role in self.ranks(scheme, size) or not self.can_follow(scheme)
        assert known or not self.stepping, f"a step asks {scheme} for {role} of {size}"
        return super().rank(role, scheme, size, bounded=bounded)


def place(node: Node, events, unplaced=()) -> set:
    """Place the roles of a step, as the engine does; return the missing ones."""
    missing = node.placing.missing(node.prefetch(events), node.table, node.placement)
    for role, scheme, size in missing:
        node.placement.rank(role, scheme, size, bounded=False)
    node.placing.done(node.table, set(unplaced))
    return set(missing)


class CheckedNode(Node):
    """Places roles before each step, as the engine does, and checks the state."""

    def __init__(self, settings):
        super().__init__(settings, Strict())
        self.placed = set()
        self._noted_by, self._shadow = None, None

    def step(self, now, events, unplaced=()):
        self.placed |= place(self, events, unplaced)
        self.placement.stepping = True
        try:
            effects = super().step(now, events, unplaced)
        finally:
            self.placement.stepping = False
        check(self, now)
        self._check_chronicle(now)
        return effects

    def _check_chronicle(self, now):
        """Compare the observed times with those of a copy that notes every view."""
        observed_times = self.view_state.observed_times
        if observed_times is not self._noted_by:
            self._noted_by, self._shadow = observed_times, copy.copy(observed_times)
            self._shadow.first_seen = dict(observed_times.first_seen)
            self._shadow.gone_since = dict(observed_times.gone_since)
        self._shadow._sources = ()
        self._shadow.note(self.view, now)
        for name in ("first_seen", "gone_since", "started_at", "was_empty", "token_base"):
            assert getattr(observed_times, name) == getattr(self._shadow, name), name


def check(node: Node, now: float) -> None:
    """Compare the state between two steps with everything derived anew."""
    check_own(node, now)
    check_group(node, now)


def check_own(node: Node, now: float) -> None:
    """Compare what the first half of a step leaves."""
    _check_view(node.view)
    _check_sight(node)
    assert node.unsettled == unsettled_in(node.view.by_age, node.owned)
    _check_waits(node, now)


def check_group(node: Node, now: float) -> None:
    """Compare the results of the second half of a step.

    Callers may have released roles since the first half.
    """
    _check_coordinator(node, now)
    _check_janitor(node)


def _check_view(view: View) -> None:
    entries = [*view.members.values(), *view.versions.values()]
    entries += [*view.requests.values(), *view.clutter.values()]
    anew = View.listed(view.revision, entries)
    assert view == anew
    assert (view.coordinator, view.problems) == (anew.coordinator, anew.problems)
    kept, fresh = view.records, anew.records
    assert list(kept.by_age) == list(fresh.by_age)
    assert (kept.pairs, kept.problems) == (fresh.pairs, fresh.problems)
    assert kept.standing.roster is kept.roster
    assert kept.standing.leaving == fresh.standing.leaving
    assert (kept.roster.place, kept.roster.births) == (fresh.roster.place, fresh.roster.births)
    assert sorted(kept.roster.unbound) == sorted(fresh.roster.unbound)


def _check_sight(node: Node) -> None:
    view, observed_times = node.view, node.view_state.observed_times
    if not view.revision:
        return
    ranked = set(view.version.ranks) if view.version else set()
    live = {member.name for member in view.by_age}
    assert observed_times.first_seen.keys() == view.records.roster.births
    assert observed_times.gone_since.keys() == ranked - live
    assert observed_times._leaving == view.records.standing.leaving
    assert node.view_state.why_unrankable == why_unrankable(view, node.name)


def _check_coordinator(node: Node, now: float) -> None:
    """Check that another draft would say the same as the last one."""
    coordinator, view = node.coordinator, node.view
    is_under_way = coordinator.proclaiming > (view.newest.number if view.newest else 0)
    if not node.coordinates or is_under_way or now < coordinator.retry_at:
        return
    if not node.member_lease.is_alive:
        return  # it ended between the halves, and the dead proclaim nothing
    if view.newest is not None and view.newest.version is None:
        return
    drafted = draft(
        node.name,
        view,
        node.view_state.observed_times,
        not node.unsettled,
        now,
        node.settings.ranking,
        without_room(view),
        coordinator.requests_at_once,
    )
    assert drafted.version is None, f"{drafted.version} was due"
    assert drafted.upcoming == coordinator.upcoming
    if drafted.upcoming and drafted.upcoming.at is not None:
        assert node.wake_at is not None
        assert node.wake_at <= drafted.upcoming.at


def _check_janitor(node: Node) -> None:
    if not node.member_lease.is_alive or node.living.state is Life.REVOKING:
        return
    waits_for_name = node.writer.state is Write.TAKEN
    suspects = _suspects(node.view, node.name, node.coordinates, waits_for_name)
    assert set(map(_binding, suspects)) <= node.janitor._look_at.keys()
    assert node.janitor._due == min(node.janitor._look_at.values(), default=None)
    if suspects:
        assert node.wake_at is not None
        assert node.wake_at <= node.janitor._due


def _check_waits(node: Node, now: float) -> None:
    """Check that no role waits that is mine and free.

    Each role is also placed and sorted, or known as new.
    """
    table, placement, waits = node.table, node.placement, node.table.waits
    for scheme, size in node.placing.complete:
        assert table.roles <= placement.ranks(scheme, size).keys() | table.unplaced
    assert table.unplaced <= table.roles
    for role in waits.keys() - waits.unsorted.keys() if waits.share else ():
        failed = placement.failure(role, waits.share.scheme, waits.share.size)
        is_mine = placement.has(waits.share, role) or failed is not None
        assert is_mine == (role in waits.mine), f"{role} is sorted wrongly"
    gate = table.gate
    if gate.share is None or now >= table.deadline:
        return
    for role in waits.keys() - table.lost.keys() - table.held.keys() - table.unplaced:
        if all(handle.token_above >= gate.token for handle in waits[role]):
            continue
        is_free = gate.is_mine(role, placement) and not gate.obstacle(role, placement)
        assert not is_free, f"{role} is mine and free, and waits"
