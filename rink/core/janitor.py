"""Remove dead records (R8).

A record is dead if etcd has not known its lease for longer than the record's own TTL. Before the
record is removed, etcd must have said so twice, a TTL apart. A record without a lease needs no
look-up: it only has to stand for its TTL.

etcd deletes a record with its lease. But etcd has lost leases and left their keys behind, and an
operator may put a key by hand. Such a record would keep its rank and its claims for ever.

Every member watches the coordinator's record, because a dead coordinator would stay one for ever.
The coordinator watches every other record, and a member that waits for its name watches the record
that has the name. A removal compares the mod_revision, so it does not matter which member is first.
"""

from __future__ import annotations

import attrs

from rink.core.effects import Effect, Level, LookUpLease, RemoveRecord, Report
from rink.core.events import LeaseLookedUp
from rink.core.values import Member
from rink.core.view import View

LOOK_INTERVAL_S = 60.0
FIRST_LOOK_DELAY_S = LOOK_INTERVAL_S / 4
"""Delay before a new record is first looked at, in seconds: most records are of live members."""

UNREADABLE_TTL_S = 60.0


Content = tuple[str, int]
"""One content of a record: its member, and its mod_revision."""

Binding = tuple[str, int, int]
"""One record, however often it is rewritten: its member, its create_revision, and its lease."""


@attrs.define
class Janitor:
    """Remember when to look at each record, and which leases are unknown.

    The times are kept by binding, so rewriting a record costs nothing here. `dead_since` and
    `_confirmed` are kept by content, because only a record that is not rewritten may be dead.
    `_watched` holds the values that select the records, and `_due` is the time of the next look.
    """

    dead_since: dict[Content, float] = attrs.field(factory=dict)
    _confirmed: set[Content] = attrs.field(factory=set)
    _look_at: dict[Binding, float] = attrs.field(factory=dict)
    _watched: tuple[object, ...] = ()
    _due: float | None = None

    def look_after(
        self, view: View, me: str, coordinates: bool, waiting_for_name: bool, now: float
    ) -> tuple[list[Effect], float | None]:
        """Return what to look up and what to remove now, and when to look again."""
        coordinator = view.coordinator.name if view.coordinator and not coordinates else ""
        watched = (view.records.roster, coordinator, coordinates, waiting_for_name)
        if watched == self._watched and (self._due is None or now < self._due):
            return [], self._due
        self._watched = watched
        suspects = _suspects(view, me, coordinates, waiting_for_name)
        self._forget_all_but(suspects)
        effects = [effect for member in suspects for effect in self._look(member, now)]
        self._due = min(self._look_at.values(), default=None)
        return effects, self._due

    def _forget_all_but(self, suspects: list[Member]) -> None:
        contents = set(map(_content, suspects))
        for content in self.dead_since.keys() - contents:
            del self.dead_since[content]
        self._confirmed &= contents
        for binding in self._look_at.keys() - set(map(_binding, suspects)):
            del self._look_at[binding]

    def _look(self, member: Member, now: float) -> list[Effect]:
        # Invariant: a record is removed only if its content is in `_confirmed`, or has no lease and
        # stands in `dead_since` for a TTL. A live member is safe: etcd knows its lease, so the
        # first look-up in between takes the content out of `dead_since` (`looked_up`).
        binding, content = _binding(member), _content(member)
        first = now if not member.lease else now + FIRST_LOOK_DELAY_S
        if now < self._look_at.setdefault(binding, first):
            return []
        effects: list[Effect] = []
        if member.lease == 0 and content not in self.dead_since:
            self.dead_since[content] = now
            text = f"record members/{member.name} has no lease: it claims nothing"
            effects.append(Report(Level.WARNING, text))
        since = self.dead_since.get(content)
        is_dead = since is not None and now >= since + _ttl(member)
        if is_dead and (not member.lease or content in self._confirmed):
            self._confirmed.discard(content)  # if the removal fails, another look-up comes first
            self._look_at[binding] = now + LOOK_INTERVAL_S
            effects.append(RemoveRecord(member.name, member.mod_revision))
            why = "etcd has not known its lease" if member.lease else "it has had no lease"
            text = f"removing record members/{member.name}: {why} for at least {_ttl(member):.0f} s"
            effects.append(Report(Level.WARNING, text))
        elif since is not None and not is_dead:
            self._look_at[binding] = since + _ttl(member)
        else:
            self._look_at[binding] = now + LOOK_INTERVAL_S
            effects.append(LookUpLease(member.name, member.mod_revision, member.lease))
        return effects

    def looked_up(self, event: LeaseLookedUp, member: Member | None, now: float) -> None:
        """Note whether etcd knows the lease of a record."""
        content = (event.name, event.mod_revision)
        if event.is_known or member is None or member.mod_revision != event.mod_revision:
            self.dead_since.pop(content, None)
        elif content not in self.dead_since:
            self.dead_since[content] = now
            self._look_again(member, now + _ttl(member))
        elif now >= self.dead_since[content] + _ttl(member):
            self._confirmed.add(content)
            self._look_again(member, now)

    def _look_again(self, member: Member, at: float) -> None:
        self._look_at[_binding(member)] = at
        self._due = min(self._look_at.values())


def _suspects(view: View, me: str, coordinates: bool, waiting_for_name: bool) -> list[Member]:
    """Return the records that this member looks after."""
    unbound = [view.members[name] for name in view.records.roster.unbound if name != me]
    bound = view.by_age if coordinates else filter(None, [view.coordinator])
    own = [view.members[me]] if waiting_for_name and me in view.members else []
    return [*unbound, *own, *(member for member in bound if member.name != me)]


def _content(member: Member) -> Content:
    return member.name, member.mod_revision


def _binding(member: Member) -> Binding:
    return member.name, member.create_revision, member.lease


def _ttl(member: Member) -> float:
    return float(member.record.ttl) if member.record else UNREADABLE_TTL_S
