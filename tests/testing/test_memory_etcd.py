"""What the in-memory etcd adds to the contract: faults on command, pumped delivery, its clock."""

from __future__ import annotations

import queue
import threading

import pytest
from etcd_world import PATIENCE_S, Seen
from virtual_clock import VirtualClock

from rink.errors import EtcdClusterChanged, EtcdCompacted, EtcdError, EtcdUnavailable, UsageError
from rink.etcd.api import Put, WatchBroken
from rink.testing.memory import MemoryCluster

END = b"\xff"


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def cluster(clock):
    """Pumped and on virtual time: no thread, so every test is a fixed sequence."""
    with MemoryCluster(clock=clock, pumped=True) as cluster:
        yield cluster


@pytest.fixture
def etcd(cluster):
    return cluster.client("one")


def put(etcd, key, value=b"", lease=0):
    return etcd.txn((), (Put(key, value, lease),)).header.revision


def keys(etcd):
    return [kv.key for kv in etcd.range(b"\0", b"\0").kvs]


def taken(seen):
    """The messages delivered so far."""
    messages = []
    while not seen.queue.empty():
        messages.append(seen.queue.get())
    return messages


def revisions(seen):
    return [event.kv.mod_revision for message in taken(seen) for event in message.events]


# --------------------------------------------------------------------------- pumped delivery


def test_a_pumped_cluster_delivers_nothing_before_it_is_told(cluster, etcd):
    seen = Seen()
    watch = etcd.watch(b"\0", END, 0, seen.deliver)
    revision = put(etcd, b"a")
    assert seen.queue.empty()
    assert watch.pending == 1
    assert cluster.pump() == 1
    assert revisions(seen) == [revision]
    assert cluster.pump() == 0


def test_streams_are_pumped_one_message_at_a_time_in_any_order(cluster, etcd):
    one, two = Seen(), Seen()
    first = etcd.watch(b"\0", END, 0, one.deliver)
    second = cluster.client().watch(b"\0", END, 0, two.deliver)
    assert cluster.streams == [first, second]
    a, b = put(etcd, b"a"), put(etcd, b"b")
    assert second.pump()
    assert second.pump()
    assert not second.pump()
    assert first.pump()
    assert revisions(two) == [a, b]
    assert revisions(one) == [a]


def test_what_a_delivery_causes_is_pumped_too(cluster, etcd):
    other = Seen()
    etcd.watch(b"a", b"", 0, lambda message: put(etcd, b"b"))
    etcd.watch(b"b", b"", 0, other.deliver)
    put(etcd, b"a")
    assert cluster.pump() == 2
    assert len(taken(other)) == 1


def test_a_keepalive_answer_can_be_dropped(cluster, etcd):
    leases = [etcd.grant(ttl).lease for ttl in (10, 20)]
    seen = Seen()
    stream = etcd.keepalives(seen.deliver)
    for lease in leases:
        stream.send(lease)
    stream.drop()
    assert cluster.pump() == 1
    assert [answer.lease for answer in taken(seen)] == leases[1:]
    stream.drop()


def test_a_client_lists_its_open_streams(cluster, etcd):
    watch = etcd.watch(b"\0", END, 0, Seen().deliver)
    cluster.client().watch(b"\0", END, 0, Seen().deliver)
    keepalives = etcd.keepalives(Seen().deliver)
    assert etcd.streams == [watch, keepalives]
    watch.close()
    assert etcd.streams == [keepalives]


# --------------------------------------------------------------------------- time


def test_a_lease_ends_exactly_when_its_time_is_over(cluster, clock, etcd):
    lease = etcd.grant(10).lease
    put(etcd, b"a", lease=lease)
    assert cluster.next_expiry == clock.now() + 10
    clock.seconds += 9.5
    assert keys(etcd) == [b"a"]
    assert etcd.time_to_live(lease) == 0
    clock.seconds += 0.5
    assert keys(etcd) == []
    assert cluster.next_expiry is None


def test_a_tick_ends_leases_and_tells_the_watches(cluster, clock, etcd):
    seen = Seen()
    etcd.watch(b"\0", END, 0, seen.deliver)
    for ttl in (20, 10):
        put(etcd, b"%d" % ttl, lease=etcd.grant(ttl).lease)
    cluster.pump()
    taken(seen)
    clock.seconds += 30
    cluster.tick()
    cluster.pump()
    # One revision for each lease, in the order in which they ended.
    assert [[e.kv.key for e in m.events] for m in taken(seen)] == [[b"10", b"20"]]
    assert cluster.store.revision == 5


def test_a_keepalive_that_comes_too_late_finds_no_lease(cluster, clock, etcd):
    lease = etcd.grant(10).lease
    seen = Seen()
    stream = etcd.keepalives(seen.deliver)
    clock.seconds += 10
    stream.send(lease)
    cluster.pump()
    (answer,) = taken(seen)
    assert (answer.ttl, answer.sent_at) == (0, clock.now())


def test_real_time_ends_leases_with_no_call_from_anybody():
    """The lease's two seconds are moved ahead on the clock rather than waited for."""
    with MemoryCluster() as cluster:
        etcd = cluster.client()
        seen = Seen()
        etcd.watch(b"\0", END, 0, seen.deliver)
        put(etcd, b"long", lease=etcd.grant(300).lease)
        lease = etcd.grant(2).lease
        revision = put(etcd, b"a", lease=lease)
        with cluster.change() as store:
            store.keep_alive(lease, cluster.now() - 1.95)
        # change() set the timer to the new end, 50 ms from now
        assert [e.deleted for e in seen.events_until(revision + 1)] == [False, False, True]


# --------------------------------------------------------------------------- faults


def test_a_cut_client_reaches_nothing(cluster, etcd):
    lease = etcd.grant(30).lease
    etcd.cut()
    assert etcd.is_cut
    for call in (
        lambda: etcd.range(b"a"),
        lambda: etcd.txn((), ()),
        lambda: etcd.grant(10),
        lambda: etcd.revoke(lease),
        lambda: etcd.time_to_live(lease),
    ):
        with pytest.raises(EtcdUnavailable):
            call()
    assert cluster.client().time_to_live(lease) == 30


def test_a_cut_client_keeps_no_lease_alive(cluster, clock, etcd):
    lease = etcd.grant(10).lease
    seen = Seen()
    stream = etcd.keepalives(seen.deliver)
    etcd.cut()
    stream.send(lease)
    clock.seconds += 10
    assert cluster.pump() == 0
    etcd.heal()
    cluster.pump()
    assert [answer.ttl for answer in taken(seen)] == [0]


def test_keepalives_not_answered_before_a_heal_are_sent_then_with_their_own_time(
    cluster, clock, etcd
):
    answered, cut, asked = (etcd.grant(10).lease for _ in range(3))
    seen = Seen()
    stream = etcd.keepalives(seen.deliver)
    stream.send(answered)
    cluster.pump()
    stream.send(cut)  # its answer is under way when the connection breaks
    etcd.cut()
    clock.seconds += 1
    stream.send(asked)
    clock.seconds += 1
    stream.send(asked)
    clock.seconds += 1
    assert cluster.pump() == 0
    etcd.heal()
    cluster.pump()
    assert [(a.lease, a.sent_at) for a in taken(seen)] == [
        (answered, 1000.0),
        (cut, 1000.0),
        (asked, 1002.0),
    ]
    assert [etcd.time_to_live(lease) for lease in (answered, cut, asked)] == [7, 10, 10]


def test_a_watch_resumes_after_a_cut_with_nothing_lost_and_nothing_twice(cluster, etcd):
    other = cluster.client("other")
    seen = Seen()
    watch = etcd.watch(b"\0", END, 0, seen.deliver)
    first, under_way = put(other, b"a"), put(other, b"b")
    watch.pump()
    etcd.cut()
    missed = put(other, b"c")
    assert cluster.pump() == 0
    etcd.heal()
    cluster.pump()
    last = put(other, b"d")
    cluster.pump()
    assert revisions(seen) == [first, under_way, missed, last]


def test_a_watch_opened_while_cut_begins_when_healed(cluster, etcd):
    put(etcd, b"a")
    etcd.cut()
    seen = Seen()
    etcd.watch(b"\0", END, 1, seen.deliver)
    assert cluster.pump() == 0
    etcd.heal()
    cluster.pump()
    assert revisions(seen) == [2]


def test_a_watch_whose_history_was_compacted_during_a_cut_breaks(cluster, etcd):
    seen = Seen()
    etcd.watch(b"\0", END, 1, seen.deliver)
    etcd.cut()
    other = cluster.client()
    put(other, b"a")
    cluster.compact(put(other, b"a"))
    etcd.heal()
    put(etcd, b"a")
    cluster.pump()
    (message,) = taken(seen)
    assert isinstance(message, WatchBroken)
    assert isinstance(message.error, EtcdCompacted)


def test_a_broken_watch_lost_on_its_way_breaks_again_and_only_once(cluster, etcd):
    cluster.compact(put(etcd, b"a"))
    seen = Seen()
    etcd.watch(b"\0", END, 1, seen.deliver)
    etcd.cut()
    etcd.heal()
    cluster.pump()
    etcd.cut()
    etcd.heal()
    cluster.pump()
    assert [type(message) for message in taken(seen)] == [WatchBroken]


def test_a_transaction_whose_answer_is_lost_was_applied(etcd):
    etcd.lose_next_answer()
    with pytest.raises(EtcdUnavailable):
        put(etcd, b"a")
    assert keys(etcd) == [b"a"]
    put(etcd, b"b")


def test_a_held_transaction_is_applied_when_told(cluster, etcd):
    held = etcd.hold_next_txn()
    assert not held.is_sent
    with pytest.raises(UsageError):
        held.apply()
    with pytest.raises(EtcdUnavailable):
        put(etcd, b"a")
    assert held.is_sent
    assert keys(etcd) == []
    revision = put(etcd, b"b")
    seen = Seen()
    etcd.watch(b"\0", END, 0, seen.deliver)
    assert held.apply().header.revision == revision + 1
    cluster.pump()
    assert revisions(seen) == [revision + 1]
    with pytest.raises(UsageError):
        held.apply()


def test_a_held_transaction_is_applied_though_its_client_has_gone(cluster, etcd):
    held = etcd.hold_next_txn()
    with pytest.raises(EtcdUnavailable):
        put(etcd, b"a")
    etcd.close()
    held.apply()
    assert keys(cluster.client()) == [b"a"]


def test_a_dropped_transaction_never_happens(etcd):
    held = etcd.hold_next_txn()
    with pytest.raises(EtcdUnavailable):
        put(etcd, b"a")
    held.drop()
    with pytest.raises(UsageError):
        held.apply()
    assert keys(etcd) == []


def test_a_held_transaction_may_be_refused_later(cluster, etcd):
    lease = etcd.grant(30).lease
    held = etcd.hold_next_txn()
    with pytest.raises(EtcdUnavailable):
        put(etcd, b"a", lease=lease)
    cluster.expire_lease(lease)
    with pytest.raises(EtcdError, match="requested lease not found"):
        held.apply()


def test_a_lease_can_end_before_its_time(cluster, etcd):
    lease = etcd.grant(300).lease
    put(etcd, b"a", lease=lease)
    cluster.expire_lease(lease)
    assert keys(etcd) == []
    cluster.expire_lease(lease)


def test_a_compaction_refuses_the_past_and_the_future(cluster, etcd):
    revision = put(etcd, b"a")
    cluster.compact(revision)
    with pytest.raises(EtcdCompacted):
        cluster.compact(revision)
    with pytest.raises(EtcdError, match="future"):
        cluster.compact(revision + 1)


def test_a_restored_backup_is_another_cluster_with_the_old_revisions(cluster, clock, etcd):
    lease = etcd.grant(10).lease
    put(etcd, b"a", lease=lease)
    before = etcd.range(b"a").header
    backup = cluster.backup()
    seen = Seen()
    etcd.watch(b"\0", END, before.revision + 1, seen.deliver)
    put(etcd, b"b")
    cluster.pump()
    taken(seen)
    late = etcd.grant(10).lease
    clock.seconds += 9
    cluster.restore_backup(backup)
    with pytest.raises(EtcdClusterChanged):
        etcd.range(b"a")
    header = etcd.range(b"a").header
    assert header.revision == before.revision
    assert header.cluster_id != before.cluster_id
    assert keys(etcd) == [b"a"]
    put(etcd, b"c")
    cluster.pump()
    (message,) = taken(seen)
    assert isinstance(message, WatchBroken)
    assert isinstance(message.error, EtcdClusterChanged)
    assert etcd.time_to_live(lease) == 10
    assert etcd.time_to_live(late) == -1
    assert etcd.grant(10).lease > late
    cluster.restore_backup(backup)  # the backup is as it was
    assert keys(cluster.client()) == [b"a"]


def test_what_a_delivery_raises_comes_out_of_the_pump(cluster, etcd):
    def deliver(message):
        raise ZeroDivisionError

    etcd.watch(b"\0", END, 0, deliver)
    put(etcd, b"a")
    with pytest.raises(ZeroDivisionError):
        cluster.pump()


# --------------------------------------------------------------------------- threads


def test_closing_a_watch_waits_for_the_delivery_that_runs():
    with MemoryCluster() as cluster:
        etcd = cluster.client()
        entered, go_on, order = threading.Event(), threading.Event(), queue.SimpleQueue()

        def deliver(message):
            entered.set()
            go_on.wait(PATIENCE_S)
            order.put("delivered")

        def close():
            watch.close()
            order.put("closed")

        watch = etcd.watch(b"\0", END, 0, deliver)
        put(etcd, b"a")
        put(etcd, b"b")
        assert entered.wait(PATIENCE_S)
        closer = threading.Thread(target=close)
        closer.start()
        go_on.set()
        closer.join()
        assert [order.get_nowait(), order.get_nowait()] == ["delivered", "closed"]
        assert order.empty()


def test_a_cluster_leaves_no_thread_behind():
    before = set(threading.enumerate())
    with MemoryCluster() as cluster:
        etcd = cluster.client()
        etcd.grant(10)
        etcd.watch(b"\0", END, 0, Seen().deliver)
        etcd.keepalives(Seen().deliver)
        assert len(set(threading.enumerate()) - before) == 3
    assert set(threading.enumerate()) == before


def test_many_threads_and_clients_make_one_history():
    with MemoryCluster() as cluster:
        seen = Seen()
        cluster.client().watch(b"\0", END, 0, seen.deliver)
        clients = [cluster.client() for _ in range(4)]

        def work(etcd):
            for i in range(50):
                put(etcd, etcd.name.encode(), b"%d" % i)

        workers = [threading.Thread(target=work, args=(etcd,)) for etcd in clients]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        events = seen.events_until(201)
        assert [e.kv.mod_revision for e in events] == list(range(2, 202))
        for etcd in clients:
            mine = [e.kv for e in events if e.kv.key == etcd.name.encode()]
            assert [int(kv.value) for kv in mine] == list(range(50))
            assert [kv.version for kv in mine] == list(range(1, 51))
