"""Find the ranks that a step needs, to compute them before the lock (R2).

A step places the roles of its table, and the pinned roles of a new version. It places them by the
shares and the version of the view that its events lead to. Folding the events twice is cheap, but a
user's scheme may be slow. To look at every role of the table for each event would also be slow, so
`Placing` remembers which roles are placed.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from rink.core import events as ev
from rink.core import schemes
from rink.core.events import MemberEvent
from rink.core.holds import Table
from rink.core.member_record import Share
from rink.core.placement import Placement
from rink.core.record_index import SchemeSize
from rink.core.values import Version
from rink.core.view import View


def view_after(view: View, event: MemberEvent) -> View:
    """Return the view after an event."""
    match event:
        case ev.Listed():
            return View.listed(event.revision, event.entries)
        case ev.Changed() if 0 < view.revision < event.revision:
            return view.changed(event.revision, event.changes)
        case ev.HistoryChanged():
            return View()
    return view  # also for a change without a list before it, from a watch that was given up


@attrs.frozen
class SchemePrefetch:
    """Hold the pairs by which a step places its roles.

    `pinned` are the pinned roles that the step places once, by the pair `pinned_by`.
    """

    pairs: frozenset[SchemeSize]
    pinned: Collection[str] = ()
    pinned_by: SchemeSize = ("", 0)

    @classmethod
    def of(cls, view: View, share: Share | None, placed: Version | None) -> SchemePrefetch:
        """Find the pairs of a step whose events lead to a view.

        `share` is the member's share when the step begins. The pins of `placed` need no placing.
        """
        pairs = set(view.records.pairs)
        if share is not None:
            pairs.add((share.scheme, share.size))
        version = view.version
        if version is None:
            return cls(frozenset(pairs))
        pair = (version.scheme, len(version.ranks))
        # The pins of a version that was placed already are part of its shares.
        return cls(frozenset(pairs | {pair}), () if version is placed else version.pins, pair)


@attrs.define
class Placing:
    """Remember which roles are placed by which pairs.

    Invariant: each role of the table is placed by each pair of `complete`, or is in the table's
    `unplaced`. It holds because roles enter the table by `unplaced`, and `done` makes a pair
    complete only after `missing` has named all of its roles. So a step needs to look at new roles
    only.

    A pair whose scheme is not known here is never complete, because the scheme may be registered
    later. `schemes` is how many were registered before the roles of this step were placed.
    """

    complete: frozenset[SchemeSize] = frozenset()
    schemes: int = 0
    _followed: frozenset[SchemeSize] = frozenset()

    def missing(
        self, prefetch: SchemePrefetch, table: Table, placement: Placement
    ) -> list[tuple[str, str, int]]:
        """Return each (role, scheme, size) that is yet to be placed."""
        self.schemes = schemes.count()  # first: no role is placed by a scheme that comes later
        self._followed = frozenset(
            [pair for pair in prefetch.pairs if placement.can_follow(pair[0])]
        )
        new = [(pair, table.unplaced) for pair in self._followed & self.complete]
        new += [(pair, table.roles) for pair in self._followed - self.complete]
        if prefetch.pinned and placement.can_follow(prefetch.pinned_by[0]):
            new.append((prefetch.pinned_by, set(prefetch.pinned)))
        return [
            (role, scheme, size)
            for (scheme, size), roles in new
            for role in roles.difference(placement.ranks(scheme, size))
        ]

    def done(self, table: Table, unplaced: set[str]) -> None:
        """Note that every role is placed, except the `unplaced` ones.

        The caller has held the lock since its last call of `missing`.
        """
        self.complete = self._followed
        table.unplaced = unplaced
