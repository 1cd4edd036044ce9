"""Find the records that are not settled.

A settled record is exactly its member's share of the newest version, and drains nothing. A group is
settled when all records are. Only an unsettled record can block a grant, because two members'
shares of one version never meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import is_not

import attrs

from rink.core.member_record import Share
from rink.core.record_index import Records, Roster
from rink.core.values import Member


def is_settled(member: Member, share: Share | None) -> bool:
    """Return whether a record claims just this share, and drains nothing."""
    record = member.record
    if record is None or record.draining:
        return False
    return record.shares == (() if share is None else (share,))


def unsettled_in(members: Sequence[Member], owned: Mapping[str, Share]) -> dict[str, Member]:
    """Return the records that are not just their `owned` share, by name."""
    return {m.name: m for m in members if not is_settled(m, owned.get(m.name))}


@attrs.define
class Unsettled:
    """Carry the unsettled records from view to view.

    Invariant: while the roster is the same object, a rewritten record keeps its place in `by_age`.
    So a comparison with the last `by_age`, place by place, finds all changed records.
    """

    _owned: Mapping[str, Share] | None = None
    _roster: Roster | None = None
    _by_age: Sequence[Member] = ()
    _unsettled: Mapping[str, Member] = attrs.field(factory=dict)

    def find(self, records: Records, owned: Mapping[str, Share]) -> Mapping[str, Member]:
        """Return the unsettled records.

        If they have not changed, this is the same mapping object as before. It is never changed.
        """
        if owned is not self._owned or records.roster is not self._roster:
            unsettled = unsettled_in(records.by_age, owned)
            self._unsettled = self._unsettled if unsettled == self._unsettled else unsettled
        elif records.by_age is not self._by_age:
            differ = map(is_not, records.by_age, self._by_age)
            self._unsettled = self._with(list(compress(records.by_age, differ)), owned)
        self._owned, self._roster, self._by_age = owned, records.roster, records.by_age
        return self._unsettled

    def _with(self, changed: list[Member], owned: Mapping[str, Share]) -> Mapping[str, Member]:
        """Return the unsettled records after some have changed, as `find` does."""
        unsettled = unsettled_in(changed, owned)
        settled = [member.name for member in changed if member.name not in unsettled]
        if not unsettled and self._unsettled.keys().isdisjoint(settled):
            return self._unsettled
        unsettled = {**self._unsettled, **unsettled}
        for name in settled:
            unsettled.pop(name, None)
        return unsettled
