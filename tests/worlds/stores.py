"""The etcd of a small world: that of the core's tests, one snapshot per state.

What a request does depends on nothing but what lies in etcd, so each is carried out once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import attrs
from small_etcd import KEYS, Etcd, Kv

from rink.core import codec
from rink.core import events as ev
from rink.core.values import Member, Proclaimed, Record, Version

OUTSIDE = "z"
"""A member that leads and is never ranked: where a world says which versions come."""


@attrs.frozen
class Found:
    """A record that stands in etcd: under which lease, and since which revision."""

    lease: int
    created: int
    record: Record


@attrs.frozen
class Contents:
    """What the world asks about a state of etcd."""

    records: dict[str, Found]
    leases: frozenset[int]
    version: Version | None
    number: int


@attrs.define(eq=False)
class Stores:
    """The states that etcd has been in."""

    contents: list[Contents] = attrs.field(factory=list)
    _states: list[Etcd] = attrs.field(factory=list)
    _ids: dict[tuple, int] = attrs.field(factory=dict)
    _done: dict[tuple, tuple] = attrs.field(factory=dict)

    def empty(self) -> int:
        """Return the number of an etcd without keys."""
        return self._keep(Etcd())

    def with_outsider(self) -> int:
        """Return the number of one where a member leads that does nothing of its own."""
        etcd = Etcd()
        lease, etcd.next_lease = etcd.next_lease, etcd.next_lease + 1
        etcd.leases.add(lease)
        etcd.change({KEYS.member(OUTSIDE): (codec.encode(Record("of-z", 60)), lease)})
        return self._keep(etcd)

    def serve(self, state: int, name: str, number: int, effect: Any) -> tuple:
        """Carry out a request of a member: the next state, the answer, and the changes."""

        def serve(etcd: Etcd) -> ev.Event | None:
            return etcd.serve(name, effect, 0.0, f"incarnation-{etcd.next_lease}")

        return self._do(state, ("serve", name, number), serve)

    def end_lease(self, state: int, lease: int) -> tuple:
        """Have etcd end a lease."""
        return self._do(state, ("end", lease), lambda etcd: etcd.end_lease(lease))

    def proclaim(self, state: int, ranks: tuple[str, ...]) -> tuple:
        """Have the outsider proclaim a version."""
        number = self.contents[state].number + 1
        version = Version(number, ranks, "jump", because=("world",), by=OUTSIDE)
        value = codec.encode(version)
        put = {KEYS.version(number): (value, 0)}
        return self._do(state, ("put", ranks), lambda etcd: etcd.change(put) and None)

    def delete(self, state: int, name: str) -> tuple:
        """Have an operator delete a record."""
        key = KEYS.member(name)
        return self._do(state, ("delete", name), lambda etcd: etcd.change({}, [key]) and None)

    def listed(self, state: int) -> ev.Listed:
        """Return what a list of the whole range gives."""
        return self._states[state].listed()

    def _do(self, state: int, key: tuple, change: Callable[[Etcd], Any]) -> tuple:
        done = self._done.get((state, key))
        if done is None:
            etcd = _copy(self._states[state])
            answer = change(etcd)
            changes = tuple(ev.Changed(revision, tuple(what)) for revision, what in etcd.log)
            etcd.log.clear()
            done = self._done[state, key] = self._keep(etcd), answer, changes
        return done

    def _keep(self, etcd: Etcd) -> int:
        etcd.log.clear()
        key = (
            etcd.revision,
            etcd.next_lease,
            frozenset(etcd.leases),
            tuple(sorted(etcd.kvs.items(), key=lambda item: item[0])),
        )
        state = self._ids.get(key)
        if state is None:
            state = self._ids[key] = len(self._states)
            self._states.append(etcd)
            self.contents.append(_contents(etcd))
        return state


def _copy(etcd: Etcd) -> Etcd:
    other = copy.copy(etcd)
    other.kvs, other.leases, other.log = dict(etcd.kvs), set(etcd.leases), []
    other.writes, other.versions = [], []
    return other


def _contents(etcd: Etcd) -> Contents:
    records = {}
    versions: dict[int, Version | None] = {}
    for key, kv in etcd.kvs.items():
        entry = _entry(key, kv)
        if isinstance(entry, Member):
            records[entry.name] = Found(kv.lease, kv.create, entry.record)
        elif isinstance(entry, Proclaimed):
            versions[entry.number] = entry.version
    number = max(versions, default=0)
    return Contents(records, frozenset(etcd.leases), versions.get(number), number)


def _entry(key: bytes, kv: Kv) -> Any:
    return codec.read(KEYS.root, key, kv.value, kv.create, kv.mod, kv.lease)
