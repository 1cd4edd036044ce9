"""Find the records that are not settled.

A settled record is just its member's share of the newest version, and drains nothing.

A group is settled when there is none. And only such a record can be in the way of a grant, since
two members' shares of one version never meet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import is_not

import attrs

from rink.core.record_index import Records, Roster
from rink.core.values import Member, Share


def is_settled(member: Member, share: Share | None) -> bool:
    """Return whether a record claims just this share, and drains nothing.

    For the share None, it must claim nothing.
    """
    record = member.record
    if record is None or record.draining:
        return False
    return record.shares == (() if share is None else (share,))


def unsettled_in(by_age: Sequence[Member], owned: Mapping[str, Share]) -> dict[str, Member]:
    """Return the records that are not settled, by name.

    `owned` is each member's share.
    """
    return {one.name: one for one in by_age if not is_settled(one, owned.get(one.name))}


@attrs.define
class Unsettled:
    """Bring the unsettled records along from view to view.

    While the roster is the same object, rewritten records keep their places in `by_age`. So
    comparing it with the last `by_age`, place by place, finds the changed records.
    """

    _owned: Mapping[str, Share] | None = None
    _roster: Roster | None = None
    _by_age: Sequence[Member] = ()
    _found: Mapping[str, Member] = attrs.field(factory=dict)

    def find(self, records: Records, owned: Mapping[str, Share]) -> Mapping[str, Member]:
        """Return the unsettled records.

        If they have not changed, this is the same mapping object as before. It is never changed.
        """
        if owned is not self._owned or records.roster is not self._roster:
            found = unsettled_in(records.by_age, owned)
            self._found = self._found if found == self._found else found
        elif records.by_age is not self._by_age:
            differ = map(is_not, records.by_age, self._by_age)
            self._found = self._with(list(compress(records.by_age, differ)), owned)
        self._owned, self._roster, self._by_age = owned, records.roster, records.by_age
        return self._found

    def _with(self, changed: list[Member], owned: Mapping[str, Share]) -> Mapping[str, Member]:
        """Return the unsettled records after some have changed.

        It is the same mapping as before if no unsettled record is among them.
        """
        unsettled = {one.name: one for one in changed if not is_settled(one, owned.get(one.name))}
        settled = [one.name for one in changed if one.name not in unsettled]
        if not unsettled and self._found.keys().isdisjoint(settled):
            return self._found
        found = {**self._found, **unsettled}
        for name in settled:
            found.pop(name, None)
        return found
