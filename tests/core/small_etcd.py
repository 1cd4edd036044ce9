"""Carry out the effects of cores in an etcd of dicts.

It has revisions, leases and transactions. It has no time of its own, and answers nothing late: the
world holds back, loses and delays messages.
"""

from __future__ import annotations

import attrs

from rink.core import codec
from rink.core import effects as do
from rink.core import events as ev
from rink.core.keys import Keys
from rink.core.view import gone
from rink.errors import EtcdTooLarge

KEYS = Keys.of("rink/", "g")


@attrs.frozen
class Kv:
    value: bytes
    create: int
    mod: int
    lease: int


@attrs.define(eq=False)
class Etcd:
    """Keeps the content of etcd, and the log of its changes."""

    revision: int = 1
    kvs: dict[bytes, Kv] = attrs.field(factory=dict)
    leases: set[int] = attrs.field(factory=set)
    log: list[tuple[int, list]] = attrs.field(factory=list)
    next_lease: int = 1
    writes: list[str] = attrs.field(factory=list)
    versions: list[int] = attrs.field(factory=list)
    history: int = 0  # how often another one began
    max_txn_ops: int = 128  # what a real one calls --max-txn-ops

    # ── reading ──────────────────────────────────────────────────────────────────────────────

    def entry(self, key):
        kv = self.kvs[key]
        return codec.read(KEYS.root, key, kv.value, kv.create, kv.mod, kv.lease)

    def listed(self, wanted: int = 0) -> ev.Listed:
        return ev.Listed(self.revision, tuple(self.entry(key) for key in self.kvs), wanted)

    def changes_after(self, seen: int) -> ev.Changed | None:
        """The changes of the first revision after `seen`."""
        if seen >= self.revision:
            return None
        revision, changes = self.log[seen - 1]  # the first change made revision 2
        return ev.Changed(revision, tuple(changes))

    # ── writing ──────────────────────────────────────────────────────────────────────────────

    def change(self, puts: dict[bytes, tuple[bytes, int]], deletes=()) -> int:
        self.revision += 1
        changes = []
        for key in deletes:
            if key in self.kvs:
                changes.append(gone(self.entry(key)))
                del self.kvs[key]
        for key, (value, lease) in puts.items():
            old = self.kvs.get(key)
            create = old.create if old else self.revision
            self.kvs[key] = Kv(value, create, self.revision, lease)
            changes.append(self.entry(key))
            self.writes.append(key.decode())
        self.log.append((self.revision, changes))
        return self.revision

    def end_lease(self, lease: int) -> None:
        self.leases.discard(lease)
        dead = [key for key, kv in self.kvs.items() if kv.lease == lease]
        if dead:
            self.change({}, dead)

    def go_on_from(self, copy: Etcd | None) -> None:
        """Go on with another history, empty or of a copy, with the revision ahead."""
        before, other = self.revision, copy or Etcd()
        self.kvs, self.leases = dict(other.kvs), set(other.leases)
        self.history += 1
        # No change leads there: who follows has to list anew.
        self.revision, self.log = before + 1, [*self.log, (before + 1, [])]

    def copy(self) -> Etcd:
        return Etcd(self.revision, dict(self.kvs), set(self.leases))

    # ── what an operator does by hand ────────────────────────────────────────────────────────

    def put(self, path: str, value: bytes, lease: int = 0) -> int:
        return self.change({KEYS.root + path.encode(): (value, lease)})

    def delete(self, *prefixes: str) -> None:
        roots = tuple(KEYS.root + prefix.encode() for prefix in prefixes)
        self.change({}, [key for key in self.kvs if key.startswith(roots)])

    # ── what members ask for ─────────────────────────────────────────────────────────────────

    def serve(self, name: str, effect, now: float, incarnation: str) -> ev.MemberEvent | None:
        """Carry out one effect of a member; return its answer, if it has one."""
        # Invariant: each effect is one transaction of etcd, so it is applied as a whole, with one
        # revision at most. Each case reads and changes `kvs` without a step of another member.
        match effect:
            case do.GrantLease():
                lease, self.next_lease = self.next_lease, self.next_lease + 1
                self.leases.add(lease)
                return ev.LeaseGranted(lease, effect.ttl, now, incarnation)
            case do.RevokeLease():
                self.end_lease(effect.lease)
                return ev.LeaseRevoked(effect.lease)
            case do.WriteRecord():
                return self._write(KEYS.member(name), effect)
            case do.Proclaim():
                return self._proclaim(KEYS.member(name), effect)
            case do.PostRequest():
                key = KEYS.request(effect.id)
                if key not in self.kvs:
                    self.change({key: (codec.encode(effect.request), 0)})
                return ev.RequestPosted()
            case do.Prune():
                dead = [k for k in self.kvs if KEYS.version(0) <= k < KEYS.version(effect.below)]
                self.change({}, dead)
            case do.ReadRecord():
                key = KEYS.member(name)
                found = self.entry(key) if key in self.kvs else None
                return ev.RecordRead(effect.lease, effect.call, effect.mod_revision, found)
            case do.LookUpLease():
                known = effect.lease in self.leases
                return ev.LeaseLookedUp(effect.name, effect.mod_revision, known)
            case do.RemoveRecord():
                key = KEYS.member(effect.name)
                if key in self.kvs and self.kvs[key].mod == effect.mod_revision:
                    self.change({}, [key])
            case _:
                raise AssertionError(f"nobody serves {effect}")
        return None

    def _write(self, key: bytes, effect: do.WriteRecord) -> ev.MemberEvent:
        kv = self.kvs.get(key)
        if (kv.mod if kv else 0) != effect.compare:
            found = self.entry(key) if kv else None
            return ev.WriteAnswered(effect.attempt, False, self.revision, found)
        if effect.lease not in self.leases:
            return ev.WriteFailed(effect.attempt, RuntimeError("requested lease not found"))
        revision = self.change({key: (codec.encode(effect.record), effect.lease)})
        return ev.WriteAnswered(effect.attempt, True, revision)

    def _proclaim(self, own: bytes, effect: do.Proclaim) -> ev.MemberEvent:
        number = effect.version.number
        if 1 + len(effect.requests) > self.max_txn_ops:
            error = EtcdTooLarge("etcdserver: too many operations in txn request")
            return ev.ProclaimFailed(number, error)
        record, before = self.kvs.get(own), self.kvs.get(KEYS.version(number - 1))
        ok = (
            record is not None
            and record.create == effect.create_revision
            and KEYS.version(number) not in self.kvs
            and (number == 1 or (before is not None and before.mod == effect.after))
        )
        if ok:
            value = codec.encode(effect.version)
            assert len(value) <= 1_000_000
            self.versions.append(number)
            self.change(
                {KEYS.version(number): (value, 0)},
                [KEYS.request(request) for request in effect.requests],
            )
        return ev.ProclaimAnswered(number, ok)


def unanswered(effect) -> ev.MemberEvent | None:
    """Return the event of a request whose answer is lost."""
    error = RuntimeError("no endpoint answered")
    match effect:
        case do.GrantLease():
            return ev.LeaseFailed(error)
        case do.RevokeLease():
            return ev.RevokeFailed(effect.lease, error)
        case do.WriteRecord():
            return ev.WriteFailed(effect.attempt, error)
        case do.Proclaim():
            return ev.ProclaimFailed(effect.version.number, error)
        case do.PostRequest():
            return ev.PostFailed(error)
        case do.ReadRecord():
            return ev.RecordReadFailed(effect.lease, effect.call, error)
    return None
