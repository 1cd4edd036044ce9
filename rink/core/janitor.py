"""Dead records (R8): one whose lease etcd does not know, for longer than its own ttl, is removed.

Before it is removed, its lease is looked up once more: etcd has to say twice, a ttl apart, that it
knows no such lease. A record without a lease needs no look.

etcd deletes a record with its lease; but leases have been lost with their keys left behind, and an
operator may put a key by hand. Such a record would hold its rank, and its claims, for ever.

Everyone looks at the coordinator's record, because a dead one would coordinate for ever. The
coordinator, and whoever waits to join under a name, look at the others too. The removal compares,
so it does not matter who is first.
"""

from __future__ import annotations

import attrs

from rink.core.effects import Effect, Level, LookUpLease, RemoveRecord, Report
from rink.core.events import LeaseLookedUp
from rink.core.values import Member
from rink.core.view import View

LOOK_EVERY_S = 60.0
UNREADABLE_TTL_S = 60.0


@attrs.define
class Janitor:
    """When which record was looked at, and since when which lease is known to be unknown."""

    dead_since: dict[tuple[str, int], float] = attrs.field(factory=dict)
    _confirmed: set[tuple[str, int]] = attrs.field(factory=set)
    _look_at: dict[tuple[str, int], float] = attrs.field(factory=dict)

    def suspects(
        self, view: View, me: str, coordinates: bool, waiting_for_name: bool
    ) -> list[Member]:
        """Return the records that this member looks after."""
        unbound = [one for one in view.members.values() if not one.lease and one.name != me]
        bound = view.by_age if coordinates else filter(None, [view.coordinator])
        own = [view.members[me]] if waiting_for_name and me in view.members else []
        return [*unbound, *own, *(member for member in bound if member.name != me)]

    def look(self, suspects: list[Member], now: float) -> tuple[list[Effect], float | None]:
        """Return what to look up and what to remove now, and when to look again."""
        effects: list[Effect] = []
        known = {(member.name, member.mod_revision) for member in suspects}
        for times in (self.dead_since, self._look_at):
            for key in times.keys() - known:
                del times[key]
        self._confirmed &= known
        for member in suspects:
            key = (member.name, member.mod_revision)
            if now < self._look_at.setdefault(key, now if not member.lease else now + self._first):
                continue
            if member.lease == 0 and key not in self.dead_since:
                self.dead_since[key] = now
                text = f"record members/{member.name} has no lease: it claims nothing"
                effects.append(Report(Level.WARNING, text))
            since = self.dead_since.get(key)
            is_dead = since is not None and now >= since + _ttl(member)
            if is_dead and (not member.lease or key in self._confirmed):
                self._confirmed.discard(key)  # where the removal fails, another look comes first
                self._look_at[key] = now + LOOK_EVERY_S
                effects.append(RemoveRecord(member.name, member.mod_revision))
                text = f"record members/{member.name} is removed: etcd has not known its lease "
                effects.append(Report(Level.WARNING, f"{text}for {_ttl(member):.0f} s"))
            elif since is not None and not is_dead:
                self._look_at[key] = since + _ttl(member)
            else:
                self._look_at[key] = now + LOOK_EVERY_S
                effects.append(LookUpLease(member.name, member.mod_revision, member.lease))
        return effects, min(self._look_at.values(), default=None)

    @property
    def _first(self) -> float:
        """Return the delay before a new record is first looked at.

        Most records are of live members.
        """
        return LOOK_EVERY_S / 4

    def looked_up(self, event: LeaseLookedUp, member: Member | None, now: float) -> None:
        """Take in whether etcd knows a lease."""
        key = (event.name, event.mod_revision)
        if event.is_known or member is None or member.mod_revision != event.mod_revision:
            self.dead_since.pop(key, None)
        elif key not in self.dead_since:
            self.dead_since[key] = now
            self._look_at[key] = now + _ttl(member)
        elif now >= self.dead_since[key] + _ttl(member):
            self._confirmed.add(key)
            self._look_at[key] = now


def _ttl(member: Member) -> float:
    return float(member.record.ttl) if member.record else UNREADABLE_TTL_S
