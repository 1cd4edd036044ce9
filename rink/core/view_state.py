"""Keep a member's view of its group, and the facts that outlive views.

The view is replaced only by a list. Between two lists, the changes of the watch are added to it. It
is thrown away whenever the lease ends, because an etcd that does not know the lease may not know
the rest of the view either. Two things outlive a view: `observed_times`, and the facts in `history`
that can prove another history of etcd (R11).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import attrs

from rink.core.effects import Level, ListGroup
from rink.core.etcd_history import EtcdHistory
from rink.core.events import Changed, Listed, MemberEvent
from rink.core.next_version import why_unrankable
from rink.core.observed_times import ObservedTimes
from rink.core.outbox import Outbox
from rink.core.record_index import is_same
from rink.core.scheme_prefetch import view_after
from rink.core.view import View


@attrs.define
class ViewState:
    """Keep the view, and the facts that outlive it.

    A list that was requested before the last `ListGroup` does not count. It carries a number below
    `lists_wanted`. `why_unrankable` says why the view can give this member no rank, or is "".
    """

    view: View = attrs.field(factory=View)
    observed_times: ObservedTimes = attrs.field(factory=ObservedTimes)
    history: EtcdHistory = attrs.field(factory=EtcdHistory)
    lists_wanted: int = 0
    why_unrankable: str = ""
    _folded: deque[tuple[View, MemberEvent, View]] = attrs.field(factory=deque)
    _sources: tuple[object, ...] = ()
    _reported: set[tuple[str, str]] = attrs.field(factory=set)

    def is_heard(self, event: MemberEvent) -> bool:
        """Return whether an event counts: a list for a dropped view does not."""
        return not isinstance(event, Listed) or event.wanted >= self.lists_wanted

    def fold(self, events: Sequence[MemberEvent]) -> View:
        """Return the view that events lead to.

        The view after each event is kept for the step, so the step does not fold again.
        """
        view, self._folded = self.view, deque()
        for event in events:
            after = view_after(view, event)
            self._folded.append((view, event, after))
            view = after
        return view

    def _after(self, event: MemberEvent) -> View:
        """Return the view after an event, derived anew only if `fold` has not."""
        while self._folded:
            before, folded, after = self._folded.popleft()
            if folded is event:
                return after if before is self.view else view_after(self.view, event)
        return view_after(self.view, event)

    def change(self, event: Changed) -> None:
        """Add changes to the view."""
        self.view = self._after(event)

    def replace(self, listed: Listed, name: str) -> str:
        """Replace the view by a list, for the member of this name.

        If the list proves another history, keep the view, and return the proof.
        """
        # Lists come one after the other, and reads are linearizable. So within one history, the
        # revision never goes back.
        if listed.revision < self.view.revision:
            return f"etcd's revision went back from {self.view.revision} to {listed.revision}"
        self.history.keep(self.view, self.observed_times.token_base)
        view = self._after(listed)
        because = self.history.contradiction(view, name)
        if not because:
            self.view = view
        return because

    def note(self, name: str, now: float, out: Outbox) -> None:
        """Note the news of the view, and warn of each problem once."""
        view = self.view
        self.observed_times.note(view, now)
        # All sources of problems. A source that has not changed is the same object as before.
        problems, standing = view.records.problems, view.records.standing
        sources = (problems, standing, view.versions, view.requests, view.clutter)
        if not is_same(sources, self._sources):
            self._sources = sources
            self._report_problems(name, out)

    def _report_problems(self, name: str, out: Outbox) -> None:
        why = self.why_unrankable = why_unrankable(self.view, name)
        own = {(f"members/{name}", f"is not ranked: {why}")} if why else set()
        before, self._reported = self._reported, {*self.view.problems, *own}
        for key, problem in sorted(self._reported - before):
            out.report(Level.WARNING, f"{key}: {problem}")

    def throw_view_away(self, out: Outbox, *, lists: bool) -> None:
        """Throw the view away, and list the group anew if `lists`."""
        self.history.keep(self.view, self.observed_times.token_base)
        self.view = View()
        if lists:
            self.lists_wanted += 1
            out.do(ListGroup(self.lists_wanted))

    def begin_anew(self, because: str, now: float, out: Outbox) -> None:
        """Begin another history.

        Only the largest TTL and the highest token of the old history count. Its raised token base
        does not. All members must add the same base, and members that start now do not know it.
        """
        self.history.begin_anew(because, now, out)
        self.observed_times = ObservedTimes()
