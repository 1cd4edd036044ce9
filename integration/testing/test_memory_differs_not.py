"""Test that in-memory and real etcd answer random scripts alike.

Revisions are counted from the begin of the script, and leases by the order of their grants.
"""

from __future__ import annotations

import itertools

import attrs
import pytest
from etcd_world import MESSAGE_TIMEOUT_S, Seen
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from rink.errors import EtcdError
from rink.etcd.api import (
    Compare,
    Delete,
    Get,
    KeyValue,
    Put,
    RangeResult,
    TxnResult,
    TxnTarget,
    WatchBroken,
)
from rink.etcd.client import Client
from rink.testing import local_etcd
from rink.testing.memory.cluster import MemoryCluster

UNKNOWN_LEASE = 0x0BAD
# No lease ends by itself, because the two etcds need different times. The contract tests that.
TTL_S = 600
numbers = itertools.count()


# Steps of a script. `Run` turns names into keys, and offsets into leases and revisions.


@attrs.frozen
class Transaction:
    compare: tuple[Compare, ...]
    then: tuple[Put | Get | Delete, ...]
    otherwise: tuple[Put | Get | Delete, ...]


@attrs.frozen
class Read:
    key: bytes
    range_end: bytes


@attrs.frozen
class Grant:
    pass


@attrs.frozen
class Revoke:
    lease: int


@attrs.frozen
class TimeToLive:
    lease: int


@attrs.frozen
class KeepAlive:
    lease: int


@attrs.frozen
class Compact:
    revision: int


names = st.sampled_from([b"a", b"a/1", b"a/2", b"b", b"c"])
ends = st.sampled_from([b"", b"a/", b"a0", b"b", b"z"])
leases = st.integers(-1, 3)  # -1: no lease; the index of a granted lease, or an unknown lease
offsets = st.integers(0, 12)
puts = st.builds(Put, names, st.sampled_from([b"", b"1", b"2"]), st.just(-1) | leases)
branches = st.lists(
    puts | puts | st.builds(Get, names, ends) | st.builds(Delete, names, ends), max_size=4
).map(tuple)
compares = st.lists(
    st.builds(Compare, names, st.sampled_from(TxnTarget), offsets, ends, st.booleans()), max_size=2
)
steps = st.one_of(
    st.builds(Transaction, st.just(()), branches, st.just(())),
    st.builds(Transaction, compares.map(tuple), branches, branches),
    st.builds(Read, names, ends),
    st.builds(Grant),
    st.builds(Revoke, leases),
    st.builds(TimeToLive, leases),
    st.builds(KeepAlive, leases),
    st.builds(Compact, offsets),
)


class Run:
    """Run a script on one etcd, and return comparable answers and events."""

    def __init__(self, etcd, compact):
        self.etcd = etcd
        self.compact = compact
        self.prefix = b"run-%d/" % next(numbers)
        self.leases = []
        self.compacted = 0
        # etcd serves a watch that begins in the past only every 100 ms. This one begins later.
        self.live = Seen()
        self.live_watch = self.watch(etcd.range(b"none").header.revision + 1, self.live)
        self.base = etcd.txn((), (Put(self.prefix + b"begin", b""),)).header.revision
        self.live.events_until(self.base)  # the watch is open before any compaction
        self.alive = Seen()
        self.stream = etcd.keepalives(self.alive.deliver)

    def watch(self, start, seen):
        return self.etcd.watch(self.prefix, self.prefix + b"\xff", start, seen.deliver)

    def answer(self, step):
        try:
            return self.relative(self.do(step))
        except EtcdError as error:
            # The real client adds the endpoint to the server's message.
            words = ("duplicate key", "requested lease not results", "compacted", "future revision")
            return type(error).__name__, [word for word in words if word in str(error)]

    def do(self, step):
        match step:
            case Transaction(compare, then, otherwise):
                return self.etcd.txn(
                    tuple(map(self.real_compare, compare)),
                    tuple(map(self.real_op, then)),
                    tuple(map(self.real_op, otherwise)),
                )
            case Read(key, range_end):
                return self.etcd.range(self.prefix + key, range_end and self.prefix + range_end)
            case Grant():
                granted = self.etcd.grant(TTL_S)
                self.leases.append(granted.lease)
                return granted.ttl
            case Revoke(lease):
                return self.etcd.revoke(self.real_lease(lease) or UNKNOWN_LEASE)
            case TimeToLive(lease):
                # A part of the first second may have passed.
                return self.etcd.time_to_live(self.real_lease(lease) or UNKNOWN_LEASE) // 10
            case KeepAlive(lease):
                self.stream.send(self.real_lease(lease) or UNKNOWN_LEASE)
                return self.alive.answers(1)[0].ttl
            case Compact(revision):
                self.compact(self.base + revision)
                self.compacted = self.base + revision
                return None

    def real_lease(self, lease):
        if lease == -1:
            return 0
        return self.leases[lease] if lease < len(self.leases) else UNKNOWN_LEASE

    def real_op(self, op):
        op = attrs.evolve(op, key=self.prefix + op.key)
        if isinstance(op, Put):
            return attrs.evolve(op, lease=self.real_lease(op.lease))
        return attrs.evolve(op, range_end=op.range_end and self.prefix + op.range_end)

    def real_compare(self, compare):
        value = compare.value
        if compare.target is not TxnTarget.VERSION and value:
            value += self.base
        end = compare.range_end and self.prefix + compare.range_end
        return attrs.evolve(compare, key=self.prefix + compare.key, value=value, range_end=end)

    def relative(self, answer):
        """Return an answer with revisions, keys and leases relative to this run."""
        match answer:
            case TxnResult(header, succeeded, results):
                kvs = [[self.relative(kv) for kv in result] for result in results]
                return header.revision - self.base, succeeded, kvs
            case RangeResult(header, kvs):
                return header.revision - self.base, [self.relative(kv) for kv in kvs]
            case KeyValue(key, value, create, mod, version, lease):
                index = self.leases.index(lease) if lease else None
                created = create and create - self.base
                return (
                    key.removeprefix(self.prefix),
                    value,
                    created,
                    mod - self.base,
                    version,
                    index,
                )
            case _:
                return answer

    def events(self, starts):
        """Return the events of the live watch, and of a watch from each start."""
        end = self.etcd.txn((), (Put(self.prefix + b"end", b""),)).header.revision
        results = [self.relative_events(self.live.events_until(end))]
        watches = []
        for offset in starts:
            start = self.base + offset
            # etcd 3.5 forgets the deletions of the compacted revision.
            start += start == self.compacted
            seen = Seen()
            watches.append((start, seen, self.watch(start, seen)))
        for start, seen, watch in watches:
            if start < self.compacted:
                message = seen.queue.get(timeout=MESSAGE_TIMEOUT_S)
                assert isinstance(message, WatchBroken)
                results.append(type(message.error).__name__)
            elif start <= end:
                results.append(self.relative_events(seen.events_until(end)))
            watch.close()
        return results

    def relative_events(self, events):
        return [(event.deleted, self.relative(event.kv)) for event in events]

    def close(self):
        self.live_watch.close()
        self.stream.close()
        for lease in self.leases:
            self.etcd.revoke(lease)


@pytest.fixture(scope="module")
def real():
    with local_etcd() as node, Client([node.endpoint]) as client:
        yield client


# The client's threads use `random` for the jitter of retries, while Hypothesis generates data.
@pytest.mark.filterwarnings("ignore:Do not use the .random. module inside strategies")
@settings(
    max_examples=100,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(
    script=st.lists(steps, min_size=3, max_size=14),
    starts=st.lists(offsets, min_size=1, max_size=2),
)
@example(  # a key changes its lease, the lease ends, and the history is compacted
    script=[
        Grant(),
        Transaction((), (Put(b"b", b"1", 0), Put(b"a", b"1", 0), Put(b"c", b"", -1)), ()),
        Transaction((Compare(b"a", TxnTarget.CREATE, 1),), (Put(b"a", b"2", -1),), ()),
        Revoke(0),
        Compact(2),
        Transaction((), (Put(b"a", b"", 0),), ()),
    ],
    starts=[1, 3],
)
def test_memory_etcd_and_real_etcd_answer_alike(real, script, starts):
    with MemoryCluster() as cluster:
        runs = [Run(cluster.client(), cluster.compact), Run(real, real.compact)]
        try:
            for step in script:
                memory_answer, real_answer = (run.answer(step) for run in runs)
                note(f"{step}: {real_answer}")
                assert memory_answer == real_answer
            memory_events, real_events = (run.events(starts) for run in runs)
            assert memory_events == real_events
        finally:
            for run in runs:
                run.close()
