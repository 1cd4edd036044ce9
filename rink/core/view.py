"""A member's view: the fold of the group's whole key range up to one etcd revision.

A `View` is immutable; `listed` and `changed` return the next one. What follows from a view alone
is derived here, once per view at most, so that no state is kept that a view already says. What
follows from the records is brought along from view to view (`rink.core.record_index`), and a mapping in
which nothing has changed is the same object as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from rink.core.record_index import Records
from rink.core.values import Asked, Clutter, Entry, Member, Proclaimed, Share, Version

RankOf = Callable[[str, str, int], int | None]
"""(role, scheme, size) -> the rank that the scheme maps the role to."""


@attrs.frozen
class Gone:
    """A deleted key, as the entry that was read from it or would have been."""

    kind: type[Entry]
    id: str | int


Change = Entry | Gone


def gone(entry: Entry) -> Gone:
    """Return the deletion of an entry."""
    return Gone(type(entry), _id(entry))


def _id(entry: Entry) -> str | int:
    match entry:
        case Member(name=name):
            return name
        case Proclaimed(number=number):
            return number
        case Asked(id=request_id):
            return request_id
        case _:
            return entry.key


# With slots, attrs makes its own cached properties: those of Python 3.11 take a lock.
@attrs.frozen
class View:
    """What lies in the group's key range at `revision`; 0 is the view before the first list."""

    revision: int = 0
    members: Mapping[str, Member] = attrs.field(factory=dict)
    versions: Mapping[int, Proclaimed] = attrs.field(factory=dict)
    requests: Mapping[str, Asked] = attrs.field(factory=dict)
    clutter: Mapping[str, Clutter] = attrs.field(factory=dict)
    _records: Records | None = attrs.field(default=None, eq=False, repr=False)

    @classmethod
    def listed(cls, revision: int, entries: Iterable[Entry]) -> View:
        """Return the view that a list of the whole range gives."""
        return cls().changed(revision, entries)

    def changed(self, revision: int, changes: Iterable[Change]) -> View:
        """Return the view with the changes of whole revisions folded in."""
        parts: dict[type, Mapping[Any, Any]] = {
            Member: self.members,
            Proclaimed: self.versions,
            Asked: self.requests,
            Clutter: self.clutter,
        }
        folded: dict[type, dict[Any, Any]] = {}
        names: set[str] = set()
        for change in changes:
            key = change if isinstance(change, Gone) else gone(change)
            if key.kind not in folded:
                parts[key.kind] = folded[key.kind] = dict(parts[key.kind])
            if change is key:
                folded[key.kind].pop(key.id, None)
            else:
                folded[key.kind][key.id] = change
            if key.kind is Member:
                names.add(str(key.id))
        members, records = parts[Member], self.records
        if names:
            records = records.rewritten(self.members, members, names)
        others = parts[Proclaimed], parts[Asked], parts[Clutter]
        return View(revision, members, *others, records)

    @cached_property
    def records(self) -> Records:
        """Return what follows from the records alone."""
        return self._records or Records.of(self.members)

    @cached_property
    def newest(self) -> Proclaimed | None:
        """Return the version with the highest number.

        Its `version` is None where it cannot be read.
        """
        return self.versions[max(self.versions)] if self.versions else None

    @property
    def version(self) -> Version | None:
        """Return the newest version, or None where it cannot be read."""
        return self.newest.version if self.newest else None

    @property
    def by_age(self) -> Sequence[Member]:
        """Return the records bound to a lease, oldest first.

        The oldest has the lowest create revision.
        """
        return self.records.by_age

    @property
    def coordinator(self) -> Member | None:
        """Return the record of the member that coordinates; see `Standing`."""
        return self.members.get(self.records.standing.coordinator)

    @cached_property
    def problems(self) -> frozenset[tuple[str, str]]:
        """Return every key that cannot be read, with the reason."""
        odd = [(f"members/{name}", problem) for name, problem in self.records.problems.items()]
        odd += [(f"versions/{v.number}", v.problem) for v in self.versions.values() if v.problem]
        odd += [
            (f"requests/{one.id}", one.problem) for one in self.requests.values() if one.problem
        ]
        odd += [(clutter.key, clutter.problem) for clutter in self.clutter.values()]
        return frozenset(odd)


def shares_of(version: Version, rank_of: RankOf) -> dict[str, Share]:
    """Return every ranked member's share of a version."""
    size = len(version.ranks)
    ranked = {name: rank for rank, name in enumerate(version.ranks)}
    gained: dict[str, set[str]] = {}
    taken: dict[str, set[str]] = {}
    for role, name in version.pins.items():
        home = rank_of(role, version.scheme, size)
        if name in ranked and home is not None and version.ranks[home] != name:
            gained.setdefault(name, set()).add(role)
            taken.setdefault(version.ranks[home], set()).add(role)
    return {
        name: Share(
            rank,
            size,
            version.scheme,
            frozenset(gained.get(name, ())),
            frozenset(taken.get(name, ())),
        )
        for name, rank in ranked.items()
    }


def owner_of(version: Version, role: str, rank_of: RankOf) -> str | None:
    """Return the member that owns a role in a version.

    None where nobody is ranked.
    """
    pinned = version.pins.get(role)
    if pinned is not None and pinned in version.ranks:
        return pinned
    rank = rank_of(role, version.scheme, len(version.ranks))
    return None if rank is None else version.ranks[rank]
