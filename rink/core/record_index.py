"""Derive the facts that follow from the records of a view alone.

Each member of a group of a thousand sees an event whenever one of them rewrites its record. So the
results are carried from view to view. If records are only rewritten, two containers are copied, and
the rest costs only as much as has changed.

The rule for readers: a part that has not changed is the same object as before. So a reader that
keeps the last one compares by identity. The rule for writers: nothing here is ever changed in
place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import attrgetter, is_

import attrs

from rink.core.values import Member


def is_same(now: Sequence[object], before: Sequence[object]) -> bool:
    """Return whether two rows hold the very same objects."""
    return len(now) == len(before) and all(map(is_, now, before))


BY_AGE = attrgetter("create_revision", "name")

SchemeSize = tuple[str, int]
"""A scheme and a size."""


@attrs.frozen(eq=False)
class Roster:
    """List the records of a view, without their content.

    It is another object as soon as a record comes, goes, or is bound anew.

    `place` is where each bound record stands in the order of age, and `births` says when each was
    created. `unbound` are the names of the records without a lease.
    """

    place: Mapping[str, int]
    births: frozenset[tuple[str, int]]
    unbound: tuple[str, ...]


@attrs.frozen(eq=False)
class RecordStanding:
    """Hold the facts about the bound records that ranking reads.

    It is another object as soon as any of this changes.

    `coordinator` is the name of the oldest active record that can coordinate, or "". If no record
    is active, it is the oldest record that can. An active record comes first, because a member that
    leaves may take long to release its roles, and its record may outlive it.
    """

    roster: Roster
    leaving: frozenset[str]
    coordinator: str

    @classmethod
    def of(cls, roster: Roster, by_age: Sequence[Member]) -> RecordStanding:
        """Derive everything anew."""
        able = [member for member in by_age if member.can_coordinate]
        active = (member.name for member in able if member.is_active)
        coordinator = next(active, able[0].name if able else "")
        leaving = frozenset([member.name for member in able if not member.is_active])
        return cls(roster, leaving, coordinator)


@attrs.frozen(eq=False)
class Records:
    """Hold the facts that follow from the records of one view.

    `by_age` are the records that are bound to a lease, oldest (lowest create revision) first.
    `pairs` counts the shares of each scheme and size. `problems` says why a record cannot be read.
    """

    by_age: Sequence[Member]
    roster: Roster
    standing: RecordStanding
    pairs: Mapping[SchemeSize, int]
    problems: Mapping[str, str]

    @classmethod
    def of(cls, members: Mapping[str, Member]) -> Records:
        """Derive everything anew."""
        by_age = sorted((member for member in members.values() if member.lease), key=BY_AGE)
        roster = Roster(
            place={member.name: index for index, member in enumerate(by_age)},
            births=frozenset([(member.name, member.create_revision) for member in by_age]),
            unbound=tuple([member.name for member in members.values() if not member.lease]),
        )
        pairs: dict[SchemeSize, int] = {}
        for member in members.values():
            _count(pairs, member, 1)
        return cls(
            by_age=by_age,
            roster=roster,
            standing=RecordStanding.of(roster, by_age),
            pairs=pairs,
            problems={m.name: m.problem for m in members.values() if m.problem},
        )

    def rewritten(
        self, before: Mapping[str, Member], after: Mapping[str, Member], names: Collection[str]
    ) -> Records:
        """Return the facts that follow after some records have changed.

        This object was derived from the records `before`. `names` has all records that differ.
        """
        changes = [(before.get(name), after.get(name)) for name in names]
        by_age, pairs = list(self.by_age), dict(self.pairs)
        is_ranking_changed, problems = False, self.problems
        for old, new in changes:
            if old is None or new is None or not _is_rewritten(old, new):
                return Records.of(after)
            by_age[self.roster.place[new.name]] = new
            _count(pairs, old, -1)
            _count(pairs, new, 1)
            is_ranking_changed |= _for_ranking(old) != _for_ranking(new)
            if old.problem != new.problem:
                problems = {name: text for name, text in problems.items() if name != new.name}
                problems |= {new.name: new.problem} if new.problem else {}
        standing = RecordStanding.of(self.roster, by_age) if is_ranking_changed else self.standing
        return Records(by_age, self.roster, standing, pairs, problems)


def _is_rewritten(old: Member, new: Member) -> bool:
    """Return whether only the content of a record may have changed."""
    bound = old.lease, old.create_revision
    return old.lease != 0 and bound == (new.lease, new.create_revision)


def _for_ranking(member: Member) -> object:
    record = member.record
    return record and (record.phase, record.rebalance_delay, record.schemes)


def _count(pairs: dict[SchemeSize, int], member: Member, by: int) -> None:
    for share in member.record.shares if member.record is not None else ():
        pair = (share.scheme, share.size)
        pairs[pair] = pairs.get(pair, 0) + by
        if not pairs[pair]:
            del pairs[pair]
