"""Fold the group's whole key range, up to one etcd revision, into a view.

A `View` is immutable, and `listed` and `changed` return the next one. Facts that follow from a view
alone are derived here, at most once per view, so no other state repeats them. Facts that follow
from the records are carried from view to view (`rink.core.record_index`). A mapping in which
nothing has changed is the same object as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import attrs

from rink.core.member_record import Share
from rink.core.record_index import Records
from rink.core.values import Clutter, Entry, Member, Proclaimed, RequestEntry, Version

RankOf = Callable[[str, str, int], int | None]
"""(role, scheme, size) -> the rank that the scheme maps the role to."""


@attrs.frozen
class Gone:
    """Name a deleted key by the kind and the id of its entry."""

    kind: type[Entry]
    id: str | int


EntryChange = Entry | Gone


def gone(entry: Entry) -> Gone:
    """Return the deletion of an entry."""
    return Gone(type(entry), _id(entry))


def _id(entry: Entry) -> str | int:
    match entry:
        case Member(name=name):
            return name
        case Proclaimed(number=number):
            return number
        case RequestEntry(id=request_id):
            return request_id
        case _:
            return entry.key


# With slots, attrs makes its own cached properties: those of Python 3.11 take a lock.
@attrs.frozen
class View:
    """Hold the entries of the group's key range at `revision`.

    A `revision` of 0 is the view before the first list.
    """

    revision: int = 0
    members: Mapping[str, Member] = attrs.field(factory=dict)
    versions: Mapping[int, Proclaimed] = attrs.field(factory=dict)
    requests: Mapping[str, RequestEntry] = attrs.field(factory=dict)
    clutter: Mapping[str, Clutter] = attrs.field(factory=dict)
    _records: Records | None = attrs.field(default=None, eq=False, repr=False)

    @classmethod
    def listed(cls, revision: int, entries: Iterable[Entry]) -> View:
        """Return the view of a list of the whole range."""
        return cls().changed(revision, entries)

    def changed(self, revision: int, changes: Iterable[EntryChange]) -> View:
        """Return the view after the changes of whole revisions."""
        parts: dict[type, Mapping[Any, Any]] = {
            Member: self.members,
            Proclaimed: self.versions,
            RequestEntry: self.requests,
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
        others = parts[Proclaimed], parts[RequestEntry], parts[Clutter]
        return View(revision, members, *others, records)

    @cached_property
    def records(self) -> Records:
        """Return the facts that follow from the records alone."""
        return self._records or Records.of(self.members)

    @cached_property
    def newest(self) -> Proclaimed | None:
        """Return the version with the highest number, even if it is unreadable."""
        return self.versions[max(self.versions)] if self.versions else None

    @property
    def version(self) -> Version | None:
        """Return the newest version, or None if there is none to read."""
        return self.newest.version if self.newest else None

    @property
    def by_age(self) -> Sequence[Member]:
        """Return the records bound to a lease, by create revision."""
        return self.records.by_age

    @property
    def coordinator(self) -> Member | None:
        """Return the record of the coordinator; see `RecordStanding`."""
        return self.members.get(self.records.standing.coordinator)

    @cached_property
    def problems(self) -> frozenset[tuple[str, str]]:
        """Return every key that cannot be read, with the reason."""
        problems = [(f"members/{name}", why) for name, why in self.records.problems.items()]
        versions, requests = self.versions.values(), self.requests.values()
        problems += [(f"versions/{v.number}", v.problem) for v in versions if v.problem]
        problems += [(f"requests/{r.id}", r.problem) for r in requests if r.problem]
        problems += [(clutter.key, clutter.problem) for clutter in self.clutter.values()]
        return frozenset(problems)


def shares_of(version: Version, rank_of: RankOf) -> dict[str, Share]:
    """Return every ranked member's share of a version.

    Invariant: each role is in one share at most. By the scheme it is in the share of its rank. A
    pin to another ranked member adds it to `gained` of that member's share, and to `taken` of the
    share of its rank.
    """
    size = len(version.ranks)
    ranked = {name: rank for rank, name in enumerate(version.ranks)}
    gained: dict[str, set[str]] = {}
    taken: dict[str, set[str]] = {}
    for role, name in version.pins.items():
        home = rank_of(role, version.scheme, size)
        if name in ranked and home is not None and version.ranks[home] != name:
            gained.setdefault(name, set()).add(role)
            taken.setdefault(version.ranks[home], set()).add(role)
    pins = {name: [frozenset(of.get(name, ())) for of in (gained, taken)] for name in ranked}
    return {name: Share(rank, size, version.scheme, *pins[name]) for name, rank in ranked.items()}


def owner_of(version: Version, role: str, rank_of: RankOf) -> str | None:
    """Return the member that owns a role, or None if it has no rank."""
    pinned = version.pins.get(role)
    if pinned is not None and pinned in version.ranks:
        return pinned
    rank = rank_of(role, version.scheme, len(version.ranks))
    return None if rank is None else version.ranks[rank]
