"""What a member sees of its group, and what it keeps of earlier views.

The view is replaced only by a list. Between two lists, the changes of the watch are added to it. It
is thrown away when the lease ends, for whatever reason: an etcd that does not know the lease may
not know the rest of the view either. Two things outlive a view: the times in the observed_times, and the
facts in `history` that can prove another history of etcd (R11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import attrs

from rink.core.effects import Level, ListGroup
from rink.core.etcd_history import EtcdHistory
from rink.core.events import Changed, Event, Listed
from rink.core.next_version import why_unrankable
from rink.core.observed_times import ObservedTimes
from rink.core.outbox import Outbox
from rink.core.record_index import is_same
from rink.core.scheme_prefetch import seen
from rink.core.view import View


@attrs.define
class ViewState:
    """The view, and what outlives it.

    Lists that were asked for before the last `ListGroup` do not count: those carry a number below
    `lists_wanted`. `why_unrankable` says why this member can never be ranked by the view, if so.
    """

    view: View = attrs.field(factory=View)
    observed_times: ObservedTimes = attrs.field(factory=ObservedTimes)
    history: EtcdHistory = attrs.field(factory=EtcdHistory)
    lists_wanted: int = 0
    why_unrankable: str = ""
    _folded: deque[tuple[View, Event, View]] = attrs.field(factory=deque)
    _sources: tuple[object, ...] = ()
    _told: set[tuple[str, str]] = attrs.field(factory=set)

    def is_heard(self, event: Event) -> bool:
        """Return whether an event counts.

        A list that was asked for before the view was thrown away does not.
        """
        return not isinstance(event, Listed) or event.wanted >= self.lists_wanted

    def fold(self, events: Sequence[Event]) -> View:
        """Return the view that events lead to.

        The view after each event is kept for the step itself.
        """
        view, self._folded = self.view, deque()
        for event in events:
            after = seen(view, event)
            self._folded.append((view, event, after))
            view = after
        return view

    def _after(self, event: Event) -> View:
        """Return the view that an event leaves.

        If `fold` has made it already, it is not made twice.
        """
        while self._folded:
            before, folded, after = self._folded.popleft()
            if folded is event:
                return after if before is self.view else seen(self.view, event)
        return seen(self.view, event)

    def change(self, event: Changed) -> None:
        """Add changes to the view."""
        self.view = self._after(event)

    def replace(self, listed: Listed, name: str) -> str:
        """Replace the view by a list, for the member of this name.

        Where the list proves another history, return how instead.
        """
        # The engine's lists follow each other, and reads are linearizable.
        if listed.revision < self.view.revision:
            return f"etcd's revision went back from {self.view.revision} to {listed.revision}"
        self.history.keep(self.view, self.observed_times.token_base)
        view = self._after(listed)
        because = self.history.contradiction(view, name)
        if not because:
            self.view = view
        return because

    def note(self, name: str, now: float, out: Outbox) -> None:
        """Note what is new in the view, and warn of problems once."""
        view = self.view
        self.observed_times.note(view, now)
        # All that problems follow from. What has not changed is the same object as before.
        problems, standing = view.records.problems, view.records.standing
        sources = (problems, standing, view.versions, view.requests, view.clutter)
        if not is_same(sources, self._sources):
            self._sources = sources
            self._tell_problems(name, out)

    def _tell_problems(self, name: str, out: Outbox) -> None:
        why = self.why_unrankable = why_unrankable(self.view, name)
        own = {(f"members/{name}", f"is not ranked: {why}")} if why else set()
        told, self._told = self._told, {*self.view.problems, *own}
        for key, problem in sorted(self._told - told):
            out.report(Level.WARNING, f"{key}: {problem}")

    def throw_view_away(self, out: Outbox, *, lists: bool) -> None:
        """Throw the view away; `lists`: have the group listed anew."""
        self.history.keep(self.view, self.observed_times.token_base)
        self.view = View()
        if lists:
            self.lists_wanted += 1
            out.do(ListGroup(self.lists_wanted))

    def begin_anew(self, because: str, now: float, out: Outbox) -> None:
        """Begin another history.

        Of the old one, only the largest TTL and the highest token count. Its raised token base does
        not: members that start fresh do not know that base, and all must add the same one.
        """
        self.history.begin_anew(because, now, out)
        self.observed_times = ObservedTimes()
