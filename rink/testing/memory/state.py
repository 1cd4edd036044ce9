"""Keep the revisions, keys, history and leases of an in-memory etcd.

The module is a plain state machine, without threads, locks and clock. It behaves like etcd in these
points, which the shared suite in `tests/testing` and `integration/testing` checks:

- A transaction that changes a key takes one revision, for any number of keys. So does the end of a
  lease with keys. A transaction that changes no key takes none, and neither does a lease without
  keys.
- A transaction that etcd refuses is refused before any part of it is applied.
- The operations of one branch see the earlier operations of that branch.

It is kinder than etcd in two points. A lease ends exactly when its time is over. (etcd checks every
half second, and a new leader gives every lease its whole time again.) A watch that begins at the
revision of a compaction still gets the keys deleted in that revision.
"""

from __future__ import annotations

import bisect
import copy
import math
from operator import attrgetter
from typing import TYPE_CHECKING

import attrs

from rink.errors import EtcdCompacted, EtcdError, EtcdTooLarge
from rink.etcd.api import (
    Compare,
    Delete,
    Get,
    GrantedLease,
    Header,
    KeyChange,
    KeyValue,
    Op,
    Put,
    RangeResult,
    TxnResult,
    TxnTarget,
    WatchEvents,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MIN_TTL_S = 2  # 1.5 times etcd's default election timeout, in whole seconds
MAX_OPS = 128  # etcd's defaults for one transaction and one request
MAX_REQUEST_BYTES = 3 << 19


@attrs.define
class _Lease:
    number: int
    ttl: int
    ends_at: float
    keys: set[bytes] = attrs.Factory(set)


def in_range(key: bytes, start: bytes, range_end: bytes) -> bool:
    r"""Return whether a key lies in [start, range_end); b"\0" means no end."""
    if not range_end:
        return key == start
    return key >= start and (range_end == b"\0" or key < range_end)


@attrs.define
class MemoryState:
    """Hold the state of one etcd.

    Attributes:
        revision: the newest revision; an empty etcd begins at 1.
        compacted: the history before this revision is gone.
    """

    cluster_id: int = 0xC105
    member_id: int = 0x3E3
    raft_term: int = 2
    revision: int = 1
    compacted: int = 0
    _kvs: dict[bytes, KeyValue] = attrs.Factory(dict)
    _keys: list[bytes] = attrs.Factory(list)  # sorted, for ranges
    _history: list[WatchEvents] = attrs.Factory(list)  # one entry per revision
    _leases: dict[int, _Lease] = attrs.Factory(dict)
    _last_lease: int = 0x694D_0000

    @property
    def lease_ids(self) -> list[int]:
        """Return the ids of all leases, oldest first."""
        return list(self._leases)

    @property
    def header(self) -> Header:
        """Return the header of every answer at this revision."""
        return Header(self.cluster_id, self.member_id, self.revision, self.raft_term)

    def range(self, key: bytes, range_end: bytes) -> RangeResult:
        """Read [key, range_end), in the order of the keys.

        Raises:
            EtcdError: the key is empty.
        """
        _refuse_empty(key)
        return RangeResult(self.header, self._get(key, range_end))

    def txn(
        self, compare: tuple[Compare, ...], then: tuple[Op, ...], otherwise: tuple[Op, ...]
    ) -> TxnResult:
        """Run one branch.

        Raises:
            EtcdError: the transaction is refused, with etcd's message, and nothing was changed.
        """
        _refuse_unfit(compare, then, otherwise)
        succeeded = all(self._holds(each) for each in compare)
        branch = then if succeeded else otherwise
        for op in branch:
            if isinstance(op, Put) and op.lease and op.lease not in self._leases:
                raise EtcdError("etcdserver: requested lease not found")
        revision = self.revision + 1
        events: list[KeyChange] = []
        results: list[tuple[KeyValue, ...]] = []
        for op in branch:
            match op:
                case Get(key, range_end):
                    results.append(self._get(key, range_end))
                case Put(key, value, lease):
                    events.append(self._put(key, value, lease, revision))
                    results.append(())
                case Delete(key, range_end):
                    events += [self._delete(kv, revision) for kv in self._get(key, range_end)]
                    results.append(())
        self._commit(events)
        return TxnResult(self.header, succeeded, tuple(results))

    def grant(self, ttl: int, lease: int, now: float) -> GrantedLease:
        """Grant a lease that ends `ttl` seconds after `now`, but at least two.

        Raises:
            EtcdError: there is a lease with this id. The id 0 takes a free id.
        """
        if lease in self._leases:
            raise EtcdError(f"lease {lease:x}: lease already exists")
        while not lease or lease in self._leases:
            self._last_lease += 1
            lease = self._last_lease
        ttl = max(ttl, MIN_TTL_S)
        self._leases[lease] = _Lease(lease, ttl, now + ttl)
        return GrantedLease(lease, ttl)

    def keep_alive(self, lease: int, now: float) -> int:
        """Renew a lease, and return its TTL, or 0 for an unknown lease."""
        state = self._leases.get(lease)
        if state is None:
            return 0
        state.ends_at = now + state.ttl
        return state.ttl

    def time_to_live(self, lease: int, now: float) -> int:
        """Return the remaining whole seconds of a lease, or -1 if unknown."""
        state = self._leases.get(lease)
        return -1 if state is None else math.floor(state.ends_at - now)

    def revoke(self, lease: int) -> None:
        """End a lease, if it is known, and delete its keys in one revision."""
        state = self._leases.pop(lease, None)
        if state is not None:
            revision = self.revision + 1
            self._commit([self._delete(self._kvs[key], revision) for key in sorted(state.keys)])

    def expire(self, now: float) -> None:
        """End every lease whose time is over, in the order of their ends."""
        expired = [each for each in self._leases.values() if each.ends_at <= now]
        for each in sorted(expired, key=lambda lease: (lease.ends_at, lease.number)):
            self.revoke(each.number)

    @property
    def next_expiry(self) -> float | None:
        """Return the time of the next lease's end, on the caller's clock."""
        return min((lease.ends_at for lease in self._leases.values()), default=None)

    def compact(self, revision: int) -> None:
        """Forget the history before a revision.

        Raises:
            EtcdCompacted: the revision is compacted already.
            EtcdError: the revision does not exist yet.
        """
        if revision <= self.compacted:
            raise EtcdCompacted("etcdserver: mvcc: required revision has been compacted")
        if revision > self.revision:
            raise EtcdError("etcdserver: mvcc: required revision is a future revision")
        self.compacted = revision
        self._history = [entry for entry in self._history if entry.revision >= revision]

    def changes(self, key: bytes, range_end: bytes, start: int) -> Iterator[WatchEvents]:
        """Yield the changes in [key, range_end) by revision, from `start` on."""
        for entry in self._history[
            bisect.bisect_left(self._history, start, key=attrgetter("revision")) :
        ]:
            events = tuple(e for e in entry.events if in_range(e.kv.key, key, range_end))
            if events:
                yield WatchEvents(entry.revision, events)

    def copy(self) -> MemoryState:
        """Return a copy that shares nothing with this state."""
        return copy.deepcopy(self)

    def restored(self, backup: MemoryState, now: float) -> MemoryState:
        """Return the state that etcd's restore makes of a backup.

        It has another cluster id and the old revisions. All leases get their whole time again, as
        at each start of etcd.
        """
        new = self._after(backup, now)
        new.cluster_id = self.cluster_id + 1
        new.raft_term = 2
        return new

    def replaced(self, backup: MemoryState | None, now: float) -> MemoryState:
        """Return a backup or an empty state, with this id and a later revision."""
        new = self._after(backup or MemoryState(), now)
        new.cluster_id, new.raft_term = self.cluster_id, self.raft_term
        new.revision = self.revision + 1
        return new

    def _after(self, backup: MemoryState, now: float) -> MemoryState:
        new = backup.copy()
        new._last_lease = self._last_lease  # noqa: SLF001 - etcd's random ids never occur twice
        for lease in new._leases.values():  # noqa: SLF001
            lease.ends_at = now + lease.ttl
        return new

    def _get(self, key: bytes, range_end: bytes) -> tuple[KeyValue, ...]:
        if not range_end:
            return (self._kvs[key],) if key in self._kvs else ()
        first = bisect.bisect_left(self._keys, key)
        last = len(self._keys) if range_end == b"\0" else bisect.bisect_left(self._keys, range_end)
        return tuple(self._kvs[each] for each in self._keys[first:last])

    def _holds(self, compare: Compare) -> bool:
        kvs = self._get(compare.key, compare.range_end)
        targets = [_target(kv, compare.target) for kv in kvs] or [0]
        if compare.is_below:
            return all(target < compare.value for target in targets)
        return all(target == compare.value for target in targets)

    def _put(self, key: bytes, value: bytes, lease: int, revision: int) -> KeyChange:
        old = self._kvs.get(key)
        if old is None:
            bisect.insort(self._keys, key)
            kv = KeyValue(key, value, revision, revision, 1, lease)
        else:
            self._unbind(old)
            kv = KeyValue(key, value, old.create_revision, revision, old.version + 1, lease)
        self._kvs[key] = kv
        if lease:
            self._leases[lease].keys.add(key)
        return KeyChange(kv, deleted=False)

    def _delete(self, kv: KeyValue, revision: int) -> KeyChange:
        self._unbind(kv)
        del self._kvs[kv.key]
        self._keys.remove(kv.key)
        return KeyChange(KeyValue(kv.key, b"", 0, revision, 0, 0), deleted=True)

    def _unbind(self, kv: KeyValue) -> None:
        if kv.lease in self._leases:
            self._leases[kv.lease].keys.discard(kv.key)

    def _commit(self, events: list[KeyChange]) -> None:
        if events:
            self.revision += 1
            self._history.append(WatchEvents(self.revision, tuple(events)))


def _target(kv: KeyValue, target: TxnTarget) -> int:
    match target:
        case TxnTarget.VERSION:
            return kv.version
        case TxnTarget.CREATE:
            return kv.create_revision
        case TxnTarget.MOD:
            return kv.mod_revision


def _refuse_empty(key: bytes) -> None:
    if not key:
        raise EtcdError("etcdserver: key is not provided")


def _refuse_unfit(
    compare: tuple[Compare, ...], then: tuple[Op, ...], otherwise: tuple[Op, ...]
) -> None:
    if max(len(compare), len(then), len(otherwise)) > MAX_OPS:
        raise EtcdTooLarge("etcdserver: too many operations in txn request")
    for each in (*compare, *then, *otherwise):
        _refuse_empty(each.key)
    size = sum(len(op.key) + len(op.value) for op in (*then, *otherwise) if isinstance(op, Put))
    if size > MAX_REQUEST_BYTES:
        raise EtcdTooLarge("etcdserver: request is too large")
    for branch in (then, otherwise):
        puts = [op.key for op in branch if isinstance(op, Put)]
        deletes = [op for op in branch if isinstance(op, Delete)]
        is_deleted = any(in_range(key, op.key, op.range_end) for op in deletes for key in puts)
        if is_deleted or len(set(puts)) < len(puts):
            raise EtcdError("etcdserver: duplicate key given in txn request")
