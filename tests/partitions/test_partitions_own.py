"""Check single faces, forks, and the cost of many partitions."""

import asyncio
import queue
import sys
import threading
from pathlib import Path

import pytest
from faces_support import LONG_S, QUICK

import rink
from rink import aio
from rink.partitions import PartitionedConsumer
from rink.partitions.aio import PartitionedConsumer as AioConsumer
from rink.testing.memory.cluster import MemoryCluster

sys.path.insert(0, str(Path(__file__).parents[1] / "faces"))
from process_support import run


def test_forked_child_is_refused_and_its_parent_is_unharmed():
    run("""
        from rink.partitions import PartitionedConsumer
        a = member("a", scheme="balanced:2")
        consumer = PartitionedConsumer(a, "orders", partitions=2).__enter__()
        one = consumer.next_change(10).assignment
        two = consumer.next_change(10).assignment
        def child():
            for call in (
                lambda: consumer.assigned, lambda: consumer.next_change(0), consumer.table,
                lambda: consumer.commit(0, 1), lambda: one.commit(1), lambda: one.is_held,
                lambda: one.lost, lambda: next(iter(consumer)),
                PartitionedConsumer(a, "others", partitions=2).__enter__,
            ):
                refused(call)
            print(repr(one), repr(consumer), one.offset)
            one.release()
            consumer.__exit__()
        fork(child)
        assert one.is_held
        one.commit(1)
        consumer.commit(two.partition, 2)
        consumer.__exit__()
        a.leave()
    """)


def run_aio(scenario):
    async def whole(cluster):
        async with (
            aio.Session(cluster.client(), ttl=10) as session,
            aio.Rink(session, "g", name="a", scheme="balanced:2", **QUICK) as r,
            AioConsumer(r, "orders", partitions=2) as consumer,
        ):
            await scenario(session.etcd, r, consumer)

    with MemoryCluster() as cluster:
        asyncio.run(asyncio.wait_for(whole(cluster), LONG_S))


def test_commit_that_is_cancelled_is_settled_by_the_next():
    async def scenario(etcd, _, consumer):
        change = await consumer.next_change(LONG_S)
        begun, go_on = asyncio.Event(), threading.Event()
        loop, send = asyncio.get_running_loop(), etcd.txn

        def slow(*txn, **how):
            loop.call_soon_threadsafe(begun.set)
            go_on.wait(LONG_S)
            return send(*txn, **how)

        etcd.txn = slow
        committing = asyncio.create_task(change.assignment.commit(5))
        await begun.wait()
        committing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await committing
        etcd.txn = send
        await change.assignment.commit(6)
        go_on.set()  # only now it is sent
        await change.assignment.commit(7)
        assert change.assignment.offset == 7

    run_aio(scenario)


def test_restored_etcd_ends_what_was_assigned_before():
    """The commit raises it; if the engine learns it first, the roles are lost."""

    def is_another(*_, **__):
        raise rink.EtcdClusterChanged("the etcd cluster is another one, or was restored")

    async def scenario(etcd, _, consumer):
        change = await consumer.next_change(LONG_S)
        send, etcd.txn = etcd.txn, is_another
        with pytest.raises(rink.EtcdClusterChanged):
            await change.assignment.commit(5)
        etcd.txn = send
        with pytest.raises(rink.StaleToken, match="restored"):
            await change.assignment.commit(5)

    run_aio(scenario)


def test_commits_of_one_partition_come_one_after_the_other():
    async def scenario(_, __, consumer):
        change = await consumer.next_change(LONG_S)
        await asyncio.gather(*(change.assignment.commit(offset) for offset in range(1, 20)))
        assert change.assignment.offset == 19

    run_aio(scenario)


def test_several_tasks_hear_of_the_end():
    async def scenario(_, r, consumer):
        for _ in range(2):
            assert (await consumer.next_change(LONG_S)).assigned

        async def follow():
            async for change in consumer:
                change.assignment.release()

        tasks = [asyncio.create_task(follow()) for _ in range(3)]
        await r.leave()
        await asyncio.gather(*tasks)

    run_aio(scenario)


def test_wait_for_a_change_ends_by_its_timeout():
    async def scenario(_, __, consumer):
        for _ in range(2):
            assert (await consumer.next_change()).assigned
        assert await consumer.next_change(0) is None
        assert await consumer.next_change(0.01) is None

    run_aio(scenario)


def test_many_partitions_are_taken_over_in_a_few_transactions(rink_etcd):
    client = rink_etcd.client()
    sent, send = [], client.txn
    with (
        rink.Session(client, ttl=10) as session,
        rink.Rink(session, "g", scheme="balanced:1000", **QUICK) as r,
    ):
        assert r.wait_settled(LONG_S)
        client.txn = lambda *txn, **how: sent.append(txn) or send(*txn, **how)
        with PartitionedConsumer(r, "orders", partitions=1000) as consumer:
            numbers = {consumer.next_change(LONG_S).partition for _ in range(1000)}
            assert numbers == set(range(1000))
            assert sum(len(txn[1]) for txn in sent if b":offsets" in txn[0][-1].key) == 1000
            assert len(sent) < 200
            client.txn = send


def test_begin_that_is_interrupted_leaves_nothing_wanted(rink_session, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with rink.Rink(rink_session, "g", scheme="balanced:2", **QUICK) as r:
        assert r.wait_settled(LONG_S)
        with monkeypatch.context() as patch:
            patch.setattr("rink.role_set.Tracker._want", interrupt)
            with (
                pytest.raises(KeyboardInterrupt),
                PartitionedConsumer(r, "orders", partitions=2),
            ):
                pass
        assert (r.status().held, r.status().waiting_for) == ({}, {})
        with PartitionedConsumer(r, "orders", partitions=2) as consumer:
            assert consumer.next_change(LONG_S).assigned


@pytest.mark.parametrize(
    "where",
    ["rink.partitions.held_partitions.take_over", "rink.partitions.base_consumer.Topic.cursor"],
)
def test_failure_that_nobody_expected_is_told(rink_session, monkeypatch, caplog, where):
    def fail(*_):
        raise ZeroDivisionError(where)

    with rink.Rink(rink_session, "g", scheme="balanced:1", **QUICK) as r:
        assert r.wait_settled(LONG_S)
        with PartitionedConsumer(r, "orders", partitions=1) as consumer:
            change = consumer.next_change(LONG_S)
            monkeypatch.setattr(where, fail)
            change.assignment.release()
            with pytest.raises(ZeroDivisionError):
                consumer.next_change(LONG_S)
        assert r.status().held == {}
    assert "the consumer of topic 'orders' failed" in caplog.text


def test_callback_may_not_wait_for_changes(rink_session):
    heard = queue.SimpleQueue()

    def callback(name, is_held):
        try:
            heard.put(consumer.next_change(0))
        except rink.RinkError as error:
            heard.put(error)

    with rink.Rink(
        rink_session, "g", scheme="balanced:2", leave_timeout=0.1, on_role_change=callback
    ) as r:
        consumer = PartitionedConsumer(r, "orders", partitions=2)
        with consumer:
            assert consumer.next_change(LONG_S).assigned
            assert isinstance(heard.get(timeout=LONG_S), rink.WrongThreadError)


def test_assignment_that_is_lost_says_so(rink_etcd):
    with (
        rink.Session(rink_etcd.client(), ttl=10) as session,
        rink.Rink(session, "g", name="a", scheme="balanced:2", leave_timeout=1.0) as r,
        PartitionedConsumer(r, "orders", partitions=2) as consumer,
    ):
        one = consumer.next_change(LONG_S).assignment
        rink_etcd.expire_lease(r._opened.node.member_lease.id)
        assert one.lost.wait(LONG_S)
        while consumer.next_change(LONG_S).assigned:
            pass
        assert repr(one).endswith("lost>")
        assert not one.is_held


def test_consumer_of_other_face_raises(rink_session):
    r = rink.Rink(rink_session, "g", scheme="balanced:2")
    with pytest.raises(rink.UsageError, match=r"'orders'.*takes a rink\.aio\.Rink first"):
        AioConsumer(r, "orders", partitions=2)


def test_aio_consumer_of_other_face_or_in_plain_with_raises():
    async def scenario(etcd, r, consumer):
        with pytest.raises(rink.UsageError, match=r"'orders'.*takes a rink\.Rink first"):
            PartitionedConsumer(r, "orders", partitions=2)
        with pytest.raises(rink.UsageError, match="write `async with`, not `with`"), consumer:
            pass
        with pytest.raises(rink.UsageError, match="write `async for`, not `for`"):
            list(consumer)

    run_aio(scenario)


def test_consumer_in_async_with_raises(rink_session):
    async def enter(consumer):
        async with consumer:
            pass

    r = rink.Rink(rink_session, "g", scheme="balanced:2")
    with pytest.raises(rink.UsageError, match="write `with`, not `async with`"):
        asyncio.run(enter(PartitionedConsumer(r, "orders", partitions=2)))
