"""Provide consumers: both faces in blocking style, and virtual time."""

from __future__ import annotations

import json
from typing import Any

import attrs
from faces_support import LONG_S, QUICK, World, _Adapter, raw, until

import rink
from rink.core.keys import OffsetKeys
from rink.etcd.api import Put
from rink.partitions import PartitionedConsumer, aio

TTL_S = 10.0


class AioAssignment(_Adapter):
    def commit(self, offset: Any) -> None:
        self.portal.call(self.raw.commit(offset))

    def __enter__(self) -> Any:
        self.raw.__enter__()
        return self

    def __exit__(self, *how: object) -> None:
        self.raw.__exit__(*how)


class AioConsumer(_Adapter):
    def __enter__(self) -> Any:
        self.portal.call(self.raw.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self.portal.call(self.raw.__aexit__())

    @property
    def assigned(self) -> dict[int, Any]:
        return {n: AioAssignment(one, self.portal) for n, one in self.raw.assigned.items()}

    def next_change(self, timeout: Any = None) -> Any:
        change = self.portal.call(self.raw.next_change(timeout))
        if change is None:
            return None
        return attrs.evolve(change, assignment=AioAssignment(change.assignment, self.portal))

    def __iter__(self) -> Any:
        return iter(self.next_change, None)

    def commit(self, partition: Any, offset: Any) -> None:
        self.portal.call(self.raw.commit(partition, offset))

    def table(self) -> Any:
        return self.portal.call(self.raw.table())


class PartitionsWorld(World):
    """Members that consume."""

    def join(self, name: str | None = "a", *, partitions: int = 4, **settings: Any) -> Any:
        return super().join(name, **{"scheme": f"balanced:{partitions}", **settings})

    def consumer(self, member: Any, topic: str = "orders", partitions: int = 4) -> Any:
        if isinstance(member, _Adapter):
            made = aio.PartitionedConsumer(member.raw, topic, partitions=partitions)
            return AioConsumer(made, member.portal)
        return PartitionedConsumer(member, topic, partitions=partitions)


def told(consumer: Any, count: int) -> list[tuple[int, bool]]:
    """The next so many changes: partition, and whether it was assigned."""
    changes = [consumer.next_change(LONG_S) for _ in range(count)]
    return sorted((change.partition, change.assigned) for change in changes)


def assigned_after(consumer: Any, count: int) -> set[int]:
    """Take changes and release revoked partitions, until `count` are assigned."""
    while len(consumer.assigned) != count:
        change = consumer.next_change(LONG_S)
        assert change is not None, consumer.assigned
        if change.revoked:
            change.assignment.release()
    return set(consumer.assigned)


def offset_key(partition: int, topic: str = "orders") -> bytes:
    return OffsetKeys.of("rink/", "g", topic).partition(partition)


def stored(cluster: Any, partition: int = 0) -> dict[str, Any] | None:
    """Return the stored value of a partition."""
    found = cluster.client().range(offset_key(partition)).kvs
    return json.loads(found[0].value) if found else None


def put(cluster: Any, partition: int, value: bytes) -> None:
    cluster.client().txn((), (Put(offset_key(partition), value),))


class Worker:
    """A member in virtual time that consumes, commits, and releases."""

    def __init__(self, time: Any, name: str, *, partitions: int = 4, ttl: float = 10.0, **how: Any):
        self.time = time
        self.name = name
        self.session = time.session(ttl=ttl, margin=how.pop("margin", None))
        self.etcd = self.session.etcd
        how = {**QUICK, "scheme": f"balanced:{partitions}", "leave_timeout": 1.0, **how}
        self.member = rink.Rink(self.session, "g", name=name, **how).join()
        self.consumer = PartitionedConsumer(self.member, "orders", partitions=partitions)
        self.consumer.__enter__()
        time.workers.append(self)

    def look(self, *, lets_go: bool = True) -> list[tuple[int, bool]]:
        """Take every change there is now."""
        found = []
        while (change := self.consumer.next_change(0)) is not None:
            found.append((change.partition, change.assigned))
            if change.revoked and lets_go:
                change.assignment.release()
        return found

    @property
    def partitions(self) -> set[int]:
        return set(self.consumer.assigned)

    def leave(self) -> None:
        self.member._begin_leave()

    def crash(self) -> None:
        """Be gone for everybody else, at once and for good."""
        self.etcd.cut()


def settle(time: Any, *workers: Worker) -> None:
    """Let all take changes and release, until nothing moves without time."""
    while True:
        time.advance(0.01)  # a holder gathers for a millisecond
        if sum(len(worker.look()) for worker in workers) == 0:
            return


def pair(time, **how):
    """Two workers, settled: a has partitions 0 and 1, b has 2 and 3."""
    a = Worker(time, "a", **how)
    settle(time, a)
    b = Worker(time, "b", **how)
    settle(time, a, b)
    assert (a.partitions, b.partitions) == ({0, 1}, {2, 3})
    return a, b


__all__ = ["LONG_S", "raw", "until"]
