"""Test the in-memory etcd's pumped delivery, clock and threads."""

from __future__ import annotations

import queue
import threading

from etcd_world import MESSAGE_TIMEOUT_S, Seen
from memory_support import keys, put, revisions, taken

from rink.etcd.api import WatchOpened
from rink.testing.memory.cluster import MemoryCluster

END = b"\xff"


# --------------------------------------------------------------------------- pumped delivery


def test_pumped_cluster_delivers_only_by_pump(cluster, etcd):
    seen = Seen()
    watch = etcd.watch(b"\0", END, 0, seen.deliver)
    revision = put(etcd, b"a")
    assert seen.queue.empty()
    assert watch.pending == 2  # its opening, and the change
    assert cluster.pump() == 2
    assert revisions(seen) == [revision]
    assert cluster.pump() == 0


def test_streams_are_pumped_one_message_at_a_time_in_any_order(cluster, etcd):
    one, two = Seen(), Seen()
    first = etcd.watch(b"\0", END, 0, one.deliver)
    second = cluster.client().watch(b"\0", END, 0, two.deliver)
    assert cluster.streams == [first, second]
    assert cluster.pump() == 2  # two openings
    a, b = put(etcd, b"a"), put(etcd, b"b")
    assert second.pump()
    assert second.pump()
    assert not second.pump()
    assert first.pump()
    assert revisions(two) == [a, b]
    assert revisions(one) == [a]


def test_pump_also_delivers_the_messages_that_a_delivery_causes(cluster, etcd):
    other = Seen()
    etcd.watch(b"a", b"", 0, lambda message: put(etcd, b"b"))
    etcd.watch(b"b", b"", 0, other.deliver)
    assert cluster.pump() == 3  # two openings; the first delivery puts a key
    taken(other)
    put(etcd, b"a")
    assert cluster.pump() == 2
    assert len(taken(other)) == 1


def test_keepalive_answer_can_be_dropped(cluster, etcd):
    leases = [etcd.grant(ttl).lease for ttl in (10, 20)]
    seen = Seen()
    stream = etcd.keepalives(seen.deliver)
    for lease in leases:
        stream.send(lease)
    stream.drop()
    assert cluster.pump() == 1
    assert [answer.lease for answer in taken(seen)] == leases[1:]
    stream.drop()


def test_client_lists_its_open_streams(cluster, etcd):
    watch = etcd.watch(b"\0", END, 0, Seen().deliver)
    cluster.client().watch(b"\0", END, 0, Seen().deliver)
    keepalives = etcd.keepalives(Seen().deliver)
    assert etcd.streams == [watch, keepalives]
    watch.close()
    assert etcd.streams == [keepalives]


# --------------------------------------------------------------------------- time


def test_lease_ends_exactly_when_its_time_is_over(cluster, clock, etcd):
    lease = etcd.grant(10).lease
    put(etcd, b"a", lease=lease)
    assert cluster.next_expiry == clock.now() + 10
    clock.seconds += 9.5
    assert keys(etcd) == [b"a"]
    assert etcd.time_to_live(lease) == 0
    clock.seconds += 0.5
    assert keys(etcd) == []
    assert cluster.next_expiry is None


def test_tick_ends_leases_and_notifies_watches(cluster, clock, etcd):
    seen = Seen()
    etcd.watch(b"\0", END, 0, seen.deliver)
    for ttl in (20, 10):
        put(etcd, b"%d" % ttl, lease=etcd.grant(ttl).lease)
    cluster.pump()
    taken(seen)
    clock.seconds += 30
    cluster.tick()
    cluster.pump()
    # Each lease takes one revision, in the order of their ends.
    assert [[e.kv.key for e in m.events] for m in taken(seen)] == [[b"10", b"20"]]
    assert cluster.store.revision == 5


def test_keepalive_that_comes_too_late_finds_no_lease(cluster, clock, etcd):
    lease = etcd.grant(10).lease
    seen = Seen()
    stream = etcd.keepalives(seen.deliver)
    clock.seconds += 10
    stream.send(lease)
    cluster.pump()
    (answer,) = taken(seen)
    assert (answer.ttl, answer.sent_at) == (0, clock.now())


def test_real_time_ends_leases_without_a_call():
    """Shorten the lease in the store instead of waiting five minutes."""
    with MemoryCluster() as cluster:
        etcd = cluster.client()
        seen = Seen()
        etcd.watch(b"\0", END, 0, seen.deliver)
        put(etcd, b"long", lease=etcd.grant(600).lease)
        lease = etcd.grant(300).lease
        revision = put(etcd, b"a", lease=lease)
        with cluster.change() as store:
            store.keep_alive(lease, cluster.now() - 299.95)
        # change() has set the timer to the new end, in 50 ms
        assert [e.deleted for e in seen.events_until(revision + 1)] == [False, False, True]


# --------------------------------------------------------------------------- threads


def test_closing_a_watch_waits_for_the_delivery_that_runs():
    with MemoryCluster() as cluster:
        etcd = cluster.client()
        entered, go_on, order = threading.Event(), threading.Event(), queue.SimpleQueue()

        def deliver(message):
            if isinstance(message, WatchOpened):
                return
            entered.set()
            go_on.wait(MESSAGE_TIMEOUT_S)
            order.put("delivered")

        def close():
            watch.close()
            order.put("closed")

        watch = etcd.watch(b"\0", END, 0, deliver)
        put(etcd, b"a")
        put(etcd, b"b")
        assert entered.wait(MESSAGE_TIMEOUT_S)
        closer = threading.Thread(target=close)
        closer.start()
        go_on.set()
        closer.join()
        assert [order.get_nowait(), order.get_nowait()] == ["delivered", "closed"]
        assert order.empty()


def test_cluster_leaves_no_thread_behind():
    before = set(threading.enumerate())
    with MemoryCluster() as cluster:
        etcd = cluster.client()
        etcd.grant(10)
        etcd.watch(b"\0", END, 0, Seen().deliver)
        etcd.keepalives(Seen().deliver)
        assert len(set(threading.enumerate()) - before) == 3
    assert not set(threading.enumerate()) - before  # threads of other tests may have ended


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
