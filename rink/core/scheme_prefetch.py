"""Foresee which schemes a step asks, to ask them before the lock (R2).

A step places the roles of its table, and those that a version new to it pins, by the shares and the
version of the view that its events lead to. Folding them twice is cheap; a user's scheme may not
be. Nor is it cheap to look at every role of the table for each event. So `Placing` remembers what
is placed already.
"""

from __future__ import annotations

from collections.abc import Collection

import attrs

from rink.core import events as ev
from rink.core import schemes
from rink.core.events import Event
from rink.core.holds import Table
from rink.core.placement import Placement
from rink.core.record_index import Pair
from rink.core.values import Share, Version
from rink.core.view import View


def seen(view: View, event: Event) -> View:
    """Return the view that an event leaves."""
    match event:
        case ev.Listed():
            return View.listed(event.revision, event.entries)
        case ev.Changed() if 0 < view.revision < event.revision:
            return view.changed(event.revision, event.changes)
        case ev.HistoryChanged():
            return View()
    return view  # also a change that no list came before: of a watch that has been given up


@attrs.frozen
class SchemePrefetch:
    """The pairs that a step places its roles by.

    `pinned` are the pins that it places once, by `pinned_by`.
    """

    pairs: frozenset[Pair]
    pinned: Collection[str] = ()
    pinned_by: Pair = ("", 0)

    @classmethod
    def of(cls, view: View, share: Share | None, placed: Version | None) -> SchemePrefetch:
        """Foresee a step.

        Args:
            view: the one that its events lead to.
            share: the member's, as the step begins.
            placed: the version whose pins were placed last.
        """
        pairs = set(view.records.pairs)
        if share is not None:
            pairs.add((share.scheme, share.size))
        version = view.version
        if version is None:
            return cls(frozenset(pairs))
        pair = (version.scheme, len(version.ranks))
        # What the pins of a version that was placed already ask for lies in its shares.
        return cls(frozenset(pairs | {pair}), () if version is placed else version.pins, pair)


@attrs.define
class Placing:
    """Remember which roles are placed by which pairs.

    So only new roles are looked at.

    `complete` are the pairs by which every role of the table is placed, but those in the table's
    `unplaced`. A pair whose scheme is not known here is never complete: it may be registered.
    `schemes` is how many were registered before the roles of this step were placed.
    """

    complete: frozenset[Pair] = frozenset()
    schemes: int = 0
    _followed: frozenset[Pair] = frozenset()

    def missing(
        self, prefetch: SchemePrefetch, table: Table, placement: Placement
    ) -> list[tuple[str, str, int]]:
        """Return each (role, scheme, size) that a step has still to place."""
        self.schemes = schemes.count()  # first: one that is registered later has nothing placed
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
        """Note that every role is placed, but the `unplaced` ones.

        The caller has held the lock since `missing` said so.
        """
        self.complete = self._followed
        table.unplaced = unplaced
