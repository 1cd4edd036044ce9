"""What a step will ask schemes, known before it: so that none is called under the lock (R2).

A step places the roles of its table, and those that a version new to it pins, by the shares and the
version of the view that its events lead to. Folding them twice is cheap; a user's scheme may not
be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs

from rink.core import events as ev
from rink.core.events import Event
from rink.core.placement import Placement
from rink.core.values import Share, Version
from rink.core.view import View

Pair = tuple[str, int]
"""A scheme, and the size it is asked for."""


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
class Foresight:
    """The pairs that a step places its roles by.

    `pinned` are the pins that it places once, by `pinned_by`.
    """

    pairs: frozenset[Pair]
    pinned: Iterable[str] = ()
    pinned_by: Pair = ("", 0)

    @classmethod
    def of(
        cls, view: View, share: Share | None, placed: Version | None, events: Sequence[Event]
    ) -> Foresight:
        """Foresee a step, from the view and share that it begins with.

        The version that was placed last counts too.
        """
        for event in events:
            view = seen(view, event)
        records = [member.record for member in view.members.values() if member.record is not None]
        pairs = {(one.scheme, one.size) for record in records for one in record.shares}
        if share is not None:
            pairs.add((share.scheme, share.size))
        version = view.version
        if version is None:
            return cls(frozenset(pairs))
        pair = (version.scheme, len(version.ranks))
        # What the pins of a version that was placed already ask for lies in its shares.
        return cls(frozenset(pairs | {pair}), () if version is placed else version.pins, pair)

    def missing(self, roles: Iterable[str], placement: Placement) -> list[tuple[str, str, int]]:
        """Return each (role, scheme, size) that is still to be placed."""
        names, pinned = frozenset(roles), frozenset(self.pinned)
        asked = [(pair, names) for pair in self.pairs] + [(self.pinned_by, pinned)]
        return [
            (role, scheme, size)
            for (scheme, size), wanted in asked
            if placement.can_follow(scheme)
            for role in wanted.difference(placement.ranks(scheme, size))
        ]
