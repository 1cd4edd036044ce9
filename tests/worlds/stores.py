"""Run the etcd of a small world, with one snapshot per state.

It is the etcd of the core's tests. The effect of a request depends only on the state of etcd, so
each is carried out once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import attrs
from rules import UNPROCLAIMED, check_change
from small_etcd import KEYS, Etcd, Kv
from spec import Spec

from rink.core import codec
from rink.core import events as ev
from rink.core.member_record import MemberRecord
from rink.core.values import Member, Proclaimed, Request, RequestEntry, Version

OUTSIDE = "z"
"""A member that coordinates and is never ranked: where a world says which versions come."""

REMAINS_TTL = 5
"""How long the records that nobody keeps are to be left alone, in seconds (R8)."""


@attrs.frozen
class Found:
    """Hold a record in etcd, with its lease and its revisions.

    They are the one it was created in and the newest one.
    """

    lease: int
    created: int
    mod: int
    record: MemberRecord


@attrs.frozen
class Contents:
    """Hold the facts of a state of etcd that the world needs."""

    records: dict[str, Found]
    leases: frozenset[int]
    version: Version | None
    number: int
    requests: int


@attrs.define(eq=False)
class Stores:
    """Hold the states that etcd has been in."""

    contents: list[Contents] = attrs.field(factory=list)
    _states: list[Etcd] = attrs.field(factory=list)
    _ids: dict[tuple, int] = attrs.field(factory=dict)
    _done: dict[tuple, tuple] = attrs.field(factory=dict)

    def begin(self, spec: Spec) -> int:
        """Return the number of an etcd as a world finds it.

        No living member is in it.
        """
        etcd = Etcd()
        for name, lease in spec.remains:
            record = MemberRecord(f"remains of {name}", REMAINS_TTL, draining=("x",))
            etcd.change({KEYS.member(name): (codec.encode(record), lease)})
        _add_outsider(etcd, spec, spec.begin)
        return self._keep(etcd)

    def serve(self, state: int, name: str, number: int, effect: Any) -> tuple:
        """Carry out a request of a member.

        Return the next state, the answer, and the changes.
        """

        def serve(etcd: Etcd) -> ev.MemberEvent | None:
            return etcd.serve(name, effect, 0.0, f"incarnation-{etcd.next_lease}")

        return self._do(state, ("serve", name, number), serve, effect)

    def end_lease(self, state: int, lease: int) -> tuple:
        """Make etcd end a lease."""
        return self._do(state, ("end", lease), lambda etcd: etcd.end_lease(lease))

    def proclaim(self, state: int, ranks: tuple[str, ...]) -> tuple:
        """Make the outsider proclaim a version."""
        put = _version(self.contents[state].number + 1, ranks)
        return self._do(state, ("put", ranks), lambda etcd: etcd.change(put) and None)

    def wish(self, state: int, request: Request, number: int) -> tuple:
        """Post the request of an operator."""
        put = {KEYS.request(f"wish-{number}"): (codec.encode(request), 0)}
        return self._do(state, ("wish", number), lambda etcd: etcd.change(put) and None)

    def delete(self, state: int, name: str) -> tuple:
        """Make an operator delete a record."""
        key = KEYS.member(name)
        return self._do(state, ("delete", name), lambda etcd: etcd.change({}, [key]) and None)

    def unproclaim(self, state: int) -> tuple:
        """Make an operator delete the newest version."""
        key = KEYS.version(self.contents[state].number)
        return self._do(
            state, ("unproclaim",), lambda etcd: etcd.change({}, [key]) and None, UNPROCLAIMED
        )

    def replace(self, state: int, copy: int | None, spec: Spec) -> tuple[int, int]:
        """Go on with another history, empty or of a copy, under the same name.

        Its revision is ahead.

        Returns:
            Its state, and the first lease that is granted in it.
        """
        before, etcd = self._states[state], Etcd()
        etcd.revision, etcd.next_lease = before.revision, before.next_lease
        if copy is not None:
            etcd.kvs, etcd.leases = dict(self._states[copy].kvs), set(self._states[copy].leases)
        else:
            _add_outsider(etcd, spec, spec.anew or spec.begin)
        etcd.revision += 1
        return self._keep(etcd), etcd.next_lease

    def listed(self, state: int) -> ev.Listed:
        """Return what a list of the whole range gives."""
        return self._states[state].listed()

    def _do(
        self, state: int, key: tuple, change: Callable[[Etcd], Any], effect: Any = None
    ) -> tuple:
        done = self._done.get((state, key))
        if done is None:
            etcd = _copy(self._states[state])
            answer = change(etcd)
            changes = tuple(ev.Changed(revision, tuple(what)) for revision, what in etcd.log)
            etcd.log.clear()
            after = self._keep(etcd)
            check_change(self.contents[state], self.contents[after], effect)
            done = self._done[state, key] = after, answer, changes
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


def _add_outsider(etcd: Etcd, spec: Spec, ranks: tuple[str, ...]) -> None:
    """Add the member that coordinates and no more, with its first version."""
    if spec.has_outsider:
        lease, etcd.next_lease = etcd.next_lease, etcd.next_lease + 1
        etcd.leases.add(lease)
        etcd.change(
            {KEYS.member(OUTSIDE): (codec.encode(MemberRecord("of-z", REMAINS_TTL)), lease)}
        )
        etcd.change(_version(1, ranks))


def _version(number: int, ranks: tuple[str, ...]) -> dict[bytes, tuple[bytes, int]]:
    version = Version(number, ranks, "jump", because=("world",), by=OUTSIDE)
    return {KEYS.version(number): (codec.encode(version), 0)}


def _copy(etcd: Etcd) -> Etcd:
    other = copy.copy(etcd)
    other.kvs, other.leases, other.log = dict(etcd.kvs), set(etcd.leases), []
    other.writes, other.versions = [], []
    return other


def _contents(etcd: Etcd) -> Contents:
    records, requests = {}, 0
    versions: dict[int, Version | None] = {}
    for key, kv in etcd.kvs.items():
        entry = _entry(key, kv)
        if isinstance(entry, Member):
            records[entry.name] = Found(kv.lease, kv.create, kv.mod, entry.record)
        elif isinstance(entry, Proclaimed):
            versions[entry.number] = entry.version
        elif isinstance(entry, RequestEntry):
            requests += 1
    number = max(versions, default=0)
    return Contents(records, frozenset(etcd.leases), versions.get(number), number, requests)


def _entry(key: bytes, kv: Kv) -> Any:
    return codec.read(KEYS.root, key, kv.value, kv.create, kv.mod, kv.lease)
