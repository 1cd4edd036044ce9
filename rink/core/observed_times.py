"""Remember the times of the group that no view contains (R9).

Every member keeps these times, since every member watches the group. So a new coordinator knows
when each delay began, and no two members' clocks are ever compared.
"""

from __future__ import annotations

import math

import attrs

from rink.core import ranks
from rink.core.record_index import is_same
from rink.core.view import View


@attrs.define
class ObservedTimes:
    """Keep the times at which this member first saw each record and change.

    All times are readings of its own monotonic clock.

    `first_seen` has each record by name and create revision. `gone_since` and `offering_since` have
    the ranked members that are gone, or that offer their ranks. `emptied_since` has the last time
    at which no ranked member was active, for each ranked member that has not been active since.
    `started_at` is when the group last started from empty.

    `was_empty` says that no ranked member was live at some time since the newest version.
    `token_base` is the highest one seen. It never becomes lower, even if the versions are deleted.
    """

    first_seen: dict[tuple[str, int], float] = attrs.field(factory=dict)
    gone_since: dict[str, float] = attrs.field(factory=dict)
    offering_since: dict[str, float] = attrs.field(factory=dict)
    emptied_since: dict[str, float] = attrs.field(factory=dict)
    started_at: float | None = None
    was_empty: bool = False
    token_base: int = 0
    _leaving: frozenset[str] = frozenset()
    _is_empty: bool = False
    _last_number: int | None = None
    _sources: tuple[object, ...] = ()

    def note(self, view: View, now: float) -> None:
        """Note a view, and forget the times of records that are gone."""
        if not view.revision:
            return  # nothing has been read yet
        sources = (view.records.standing, view.newest)
        if is_same(sources, self._sources):
            return  # most changes are only of claims
        self._sources = sources
        seen = view.records.roster.births
        if seen != self.first_seen.keys():
            for key in self.first_seen.keys() - seen:
                del self.first_seen[key]
            for key in seen - self.first_seen.keys():
                self.first_seen[key] = now
        live = view.records.roster.place.keys()
        ranked = set(view.version.ranks) if view.version else set()
        self._note_gone(view, ranked - live, now)
        self._note_start(view, ranked.isdisjoint(live), now)
        self._note_leaves(view, ranked, now)
        if view.version:
            self.token_base = max(self.token_base, view.version.token_base)

    def _note_gone(self, view: View, gone: set[str], now: float) -> None:
        for name in self.gone_since.keys() - gone:
            del self.gone_since[name]
        for name in gone - self.gone_since.keys():
            # A member that left by plan reserves nothing, even if no version noted its leave in
            # time.
            self.gone_since[name] = -math.inf if name in self._leaving else now
        self._leaving = view.records.standing.leaving

    def _note_start(self, view: View, is_empty: bool, now: float) -> None:
        number = view.newest.number if view.newest else 0
        last, self._last_number = self._last_number, number
        came_back = self._is_empty and not is_empty and number == last
        self._is_empty = is_empty
        self.was_empty = is_empty or (self.was_empty and number == last)
        if last is None:
            return  # the first list does not say when its versions were proclaimed
        started = number > last and any(
            entry.number > last and entry.version and ranks.STARTED in entry.version.because
            for entry in view.versions.values()
        )
        if came_back or started:
            self.started_at = now

    def _note_leaves(self, view: View, ranked: set[str], now: float) -> None:
        """Note which members offer a rank, and whether a ranked one is active.

        A group whose members are being replaced is not starting any more. Its newcomers are
        successors, so the group must not grow for them after `initial_delay`.
        """
        active = {member.name for member in view.by_age if member.is_active}
        offering = {member.name for member in view.by_age if member.is_offering} & ranked
        since = self.offering_since
        self.offering_since = {name: since.get(name, now) for name in offering}
        if offering:
            self.started_at = None
        if ranked.isdisjoint(active):
            self.emptied_since = dict.fromkeys(ranked, now)
        elif self.emptied_since:
            absent = ranked - active
            kept = {name: at for name, at in self.emptied_since.items() if name in absent}
            self.emptied_since = kept
