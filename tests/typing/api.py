"""Check how type checkers see the public interface.

`make types` checks this file, and nothing runs it. There is one `assert_type` for each object that
users hold. So no change of an internal class turns a user's type into `Any`, or into a class that
they cannot name.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any, assert_type

import rink
import rink.aio
import rink.partitions
import rink.partitions.aio
import rink.testing
from rink.engine.signals import Signal
from rink.etcd.api import Etcd


def session() -> None:
    with rink.Session("http://127.0.0.1:2379", ttl=30, margin=3.5, ca="ca.pem") as one:
        assert_type(one, rink.Session)
        assert_type(one.is_live, bool)
        assert_type(one.ttl, int)
        assert_type(one.margin, float)
        assert_type(one.prefix, str)
        assert_type(one.etcd, Etcd)
        one.close(timeout=1.0)
    rink.Session(["a:2379", "b:2379"], user="u", password="p")


def group(one: rink.Session) -> None:
    def coordinates(now: bool) -> None: ...
    def ranked(rank: int | None) -> None: ...
    def changed(role: str, is_held: bool) -> None: ...

    with rink.Rink(
        one,
        "orders",
        name="a",
        grace=None,
        scheme=["balanced:8", "jump"],
        labels={"zone": "eu-1"},
        on_coordinator_change=coordinates,
        on_rank_change=ranked,
        on_role_change=changed,
    ) as r:
        assert_type(r, rink.Rink)
        assert_type(r.group, str)
        assert_type(r.name, str)
        assert_type(r.rank, int | None)
        assert_type(r.size, int)
        assert_type(r.version, rink.Version | None)
        assert_type(r.is_coordinator, bool)
        assert_type(r.members, tuple[rink.MemberStatus, ...])
        assert_type(r.session_remaining, float)
        assert_type(r.status(), rink.Status)
        assert_type(r.can_take("leader"), bool)
        assert_type(r.owner("leader"), str | None)
        assert_type(r.wait_settled(1.0), bool)
        assert_type(r.versions(), Iterator[rink.Version])
        for version in r.versions():
            assert_type(version.skipped, range)
    assert_type(r.join(), rink.Rink)
    r.leave(keep_rank=True)


def roles(r: rink.Rink) -> None:
    assert_type(r.get_role("leader"), rink.Role | None)
    with r.await_role("leader", timeout=1) as role:
        assert_type(role, rink.Role)
        assert_type(role.name, str)
        assert_type(role.token, int)
        assert_type(role.rank, int)
        assert_type(role.version_number, int)
        assert_type(role.is_held, bool)
        assert_type(role.lost, Signal)
        assert_type(role.lost.wait(1.0), bool)
        assert_type(role.lost.is_set(), bool)
        role.raise_if_lost()
        role.release()
    with r.roles(["a", "b"]) as mine:
        assert_type(mine, rink.RoleSet)
        assert_type(mine.held, Mapping[str, rink.Role])
        for change in mine:
            assert_type(change, rink.Change[rink.Role])
            assert_type(change.gained, bool)
            assert_type(change.lost, bool)
            assert_type(change.role.token, int)

    @r.on_role("poller")
    def poll(role: rink.Role) -> int:
        return role.token

    assert_type(poll(role), int)


async def on_asyncio() -> None:
    async with rink.aio.Session() as one, rink.aio.Rink(one, "orders") as r:
        assert_type(one, rink.aio.Session)
        await one.close(timeout=1.0)
        assert_type(r, rink.aio.Rink)
        assert_type(r.get_role("leader"), rink.aio.Role | None)
        assert_type(await r.await_role("leader"), rink.aio.Role)
        async with r.await_role("leader", timeout=1) as role:
            assert_type(role, rink.aio.Role)
            assert_type(role.lost, rink.aio.Lost)
            assert_type(await role.lost.wait(), bool)
            assert_type(role.token, int)
        async with r.roles(["a", "b"]) as mine:
            assert_type(mine.held, Mapping[str, rink.aio.Role])
            async for change in mine:
                assert_type(change, rink.aio.Change[rink.aio.Role])
        assert_type(await r.wait_settled(), bool)
        assert_type(r.versions(), AsyncIterator[rink.aio.Version])
        assert_type(r.status(), rink.aio.Status)

        @r.on_role("poller")
        async def poll(role: rink.aio.Role) -> int:
            return role.token

        assert_type(await poll(role), int)
        await r.leave()
        await one.close()
    assert_type(rink.aio.rank_of("job", 3), int | None)


def partitions(r: rink.Rink) -> None:
    with rink.partitions.PartitionedConsumer(r, "orders", partitions=8) as consumer:
        assert_type(consumer, rink.partitions.PartitionedConsumer)
        for change in consumer:
            assert_type(change, rink.partitions.PartitionChange[rink.partitions.Assignment])
            assert_type(change.assignment, rink.partitions.Assignment)
            assert_type(change.assigned, bool)
            assert_type(change.revoked, bool)
            assert_type(change.partition, int)
        assert_type(consumer.assigned, Mapping[int, rink.partitions.Assignment])
        with consumer.assigned[0] as assignment:
            assert_type(assignment.offset, int)
            assert_type(assignment.token, int)
            assert_type(assignment.lost, Signal)
            assert_type(assignment.is_held, bool)
            assert_type(assignment.role, rink.Role)
            assignment.commit(5)
        consumer.commit(0, 5)
        assert_type(consumer.table(), tuple[rink.partitions.PartitionRow, ...])


async def aio_partitions(r: rink.aio.Rink) -> None:
    async with rink.partitions.aio.PartitionedConsumer(r, "orders", partitions=8) as consumer:
        async for change in consumer:
            assert_type(change.assignment, rink.partitions.aio.Assignment)
        with consumer.assigned[0] as assignment:
            assert_type(assignment.lost, rink.aio.Lost)
            assert_type(assignment.role, rink.aio.Role)
            await assignment.commit(5)
        await consumer.commit(0, 5)
        assert_type(await consumer.table(), tuple[rink.partitions.PartitionRow, ...])


def values(status: rink.Status, member: rink.MemberStatus, version: rink.Version) -> None:
    assert_type(status.ranks, tuple[str, ...])
    assert_type(status.held, Mapping[str, int])
    assert_type(status.waiting_for, Mapping[str, str])
    assert_type(status.members, tuple[rink.MemberStatus, ...])
    assert_type(status.next_change_at, str | None)
    assert_type(member.rank, int | None)
    assert_type(member.labels, Mapping[str, str])
    assert_type(version.number, int)
    assert_type(version.pins, Mapping[str, str])
    assert_type(version.because, tuple[str, ...])


def errors(r: rink.Rink) -> None:
    try:
        r.await_role("leader", timeout=1).raise_if_lost()
    except rink.RoleTimeout as error:
        assert_type(error.role, str)
        assert_type(error.group, str)
        assert_type(error.member, str)
    except rink.RoleLost as error:
        assert_type(error.token, int)
    except rink.StaleToken as error:
        assert_type(error.newer, int)
    except rink.MemberNameTaken as error:
        assert_type(error.member, str)
    except rink.EtcdError as error:
        assert_type(error.endpoints, tuple[str, ...])
    except rink.StateError as error:
        assert_type(error.key, str)


def schemes() -> None:
    def by_length(role: str, size: int) -> int:
        return len(role) % size

    assert_type(rink.register_scheme(by_length, "by-length", version=1), str)
    assert_type(rink.rank_of("job", 3), int | None)
    assert_type(rink.rank_of("job", 3, "balanced:8"), int | None)


def helpers() -> None:
    with rink.testing.local_etcd() as node:
        assert_type(node, rink.testing.EtcdNode)
        assert_type(node.endpoint, str)
    with rink.testing.etcd_cluster(3) as cluster:
        assert_type(cluster, rink.testing.EtcdCluster)
    with rink.testing.local_redis(acl=("worker on >x",), maxmemory="1gb") as redis:
        assert_type(redis, rink.testing.RedisNode)
        assert_type(redis.url, str)
        redis.restore_copy(redis.save_copy())
    with rink.testing.redis_cluster(3) as redises:
        assert_type(redises.node_of("a"), rink.testing.RedisNode)
    with rink.testing.redis_pair(sentinel=True) as pair:
        assert_type(pair.failover(), rink.testing.RedisNode)
        assert_type(pair.sentinel, rink.testing.RedisNode | None)


# A misspelt or misplaced setting is an error where it is written, not at the first join. (Each
# `type: ignore` is checked, too: one that is not needed is an error.)
def refused(one: rink.Session, r: rink.aio.Rink, untyped: Any) -> None:
    rink.partitions.PartitionedConsumer(r, "jobs", partitions=8)  # type: ignore[arg-type]  # faces
    rink.Session(untyped, tll=30)  # type: ignore[call-arg]  # no such setting
    rink.Rink(one, "orders", "a")  # type: ignore[call-arg]  # settings are given by name
    rink.Rink("orders", one)  # type: ignore[arg-type]  # the session comes first
    rink.rank_of("job", "3")  # type: ignore[arg-type]  # a size is a number
