"""Test the faults of the in-memory etcd."""

from __future__ import annotations

import pytest
from etcd_world import Seen
from memory_support import keys, put, revisions, taken

from rink.errors import EtcdClusterChanged, EtcdCompacted, EtcdError, EtcdUnavailable, UsageError
from rink.etcd.api import WatchBroken

END = b"\xff"


def test_cut_client_reaches_nothing(cluster, etcd):
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


def test_cut_client_keeps_no_lease_alive(cluster, clock, etcd):
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


def test_heal_repeats_unanswered_keepalives_with_their_first_time(cluster, clock, etcd):
    answered, cut, unsent = (etcd.grant(10).lease for _ in range(3))
    seen = Seen()
    stream = etcd.keepalives(seen.deliver)
    stream.send(answered)
    cluster.pump()
    stream.send(cut)  # the connection breaks before its answer
    etcd.cut()
    clock.seconds += 1
    stream.send(unsent)
    clock.seconds += 1
    stream.send(unsent)
    clock.seconds += 1
    assert cluster.pump() == 0
    etcd.heal()
    cluster.pump()
    assert [(a.lease, a.sent_at) for a in taken(seen)] == [
        (answered, 1000.0),
        (cut, 1000.0),
        (unsent, 1002.0),
    ]
    assert [etcd.time_to_live(lease) for lease in (answered, cut, unsent)] == [7, 10, 10]


def test_watch_resumes_after_a_cut_with_nothing_lost_and_nothing_twice(cluster, etcd):
    other = cluster.client("other")
    seen = Seen()
    watch = etcd.watch(b"\0", END, 0, seen.deliver)
    first, pending = put(other, b"a"), put(other, b"b")
    assert watch.pump()  # its opening
    assert watch.pump()
    etcd.cut()
    missed = put(other, b"c")
    assert cluster.pump() == 0
    etcd.heal()
    cluster.pump()
    last = put(other, b"d")
    cluster.pump()
    assert (seen.openings, revisions(seen)) == (1, [first, pending, missed, last])


def test_watch_opened_while_cut_begins_when_healed(cluster, etcd):
    put(etcd, b"a")
    etcd.cut()
    seen = Seen()
    etcd.watch(b"\0", END, 1, seen.deliver)
    assert cluster.pump() == 0
    etcd.heal()
    cluster.pump()
    assert revisions(seen) == [2]


def test_watch_cut_with_nothing_delivered_opens_anew(cluster, etcd):
    seen = Seen()
    etcd.watch(b"\0", END, 0, seen.deliver)
    cluster.pump()
    etcd.cut()
    put(cluster.client(), b"missed")
    etcd.heal()
    last = put(etcd, b"seen")
    cluster.pump()
    assert (seen.openings, revisions(seen)) == (2, [last])


def test_watch_cut_and_compacted_behind_opens_anew(cluster, etcd):
    seen = Seen()
    etcd.watch(b"\0", END, 0, seen.deliver)
    first = put(etcd, b"a")
    cluster.pump()
    etcd.cut()
    other = cluster.client()
    put(other, b"a")
    cluster.compact(put(other, b"a"))
    etcd.heal()
    last = put(etcd, b"b")
    cluster.pump()
    assert (seen.openings, revisions(seen)) == (2, [first, last])


@pytest.mark.parametrize("is_empty", [True, False])
def test_watch_of_a_replaced_history_opens_anew(cluster, etcd, is_empty):
    put(etcd, b"kept")
    backup = None if is_empty else cluster.backup()
    seen = Seen()
    etcd.watch(b"\0", END, 0, seen.deliver)
    gone = put(etcd, b"gone")
    cluster.pump()
    header = etcd.range(b"a").header
    cluster.replace_history(backup)
    assert keys(etcd) == ([] if is_empty else [b"kept"])
    after = etcd.range(b"a").header
    assert (after.cluster_id, after.raft_term) == (header.cluster_id, header.raft_term)
    assert after.revision > header.revision
    last = put(etcd, b"new")
    cluster.pump()
    assert (seen.openings, revisions(seen)) == (2, [gone, last])


def test_watch_begun_behind_a_compaction_during_a_cut_breaks(cluster, etcd):
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


def test_broken_watch_lost_on_its_way_breaks_again_and_only_once(cluster, etcd):
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


def test_transaction_whose_answer_is_lost_was_applied(etcd):
    etcd.lose_next_answer()
    with pytest.raises(EtcdUnavailable):
        put(etcd, b"a")
    assert keys(etcd) == [b"a"]
    put(etcd, b"b")


def test_held_transaction_is_applied_once_by_apply(cluster, etcd):
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


def test_held_transaction_of_a_closed_client_is_applied(cluster, etcd):
    held = etcd.hold_next_txn()
    with pytest.raises(EtcdUnavailable):
        put(etcd, b"a")
    etcd.close()
    held.apply()
    assert keys(cluster.client()) == [b"a"]


def test_dropped_transaction_never_happens(etcd):
    held = etcd.hold_next_txn()
    with pytest.raises(EtcdUnavailable):
        put(etcd, b"a")
    held.drop()
    with pytest.raises(UsageError):
        held.apply()
    assert keys(etcd) == []


def test_held_transaction_may_be_refused_later(cluster, etcd):
    lease = etcd.grant(30).lease
    held = etcd.hold_next_txn()
    with pytest.raises(EtcdUnavailable):
        put(etcd, b"a", lease=lease)
    cluster.expire_lease(lease)
    with pytest.raises(EtcdError, match="requested lease not found"):
        held.apply()


def test_lease_can_end_before_its_time(cluster, etcd):
    lease = etcd.grant(300).lease
    put(etcd, b"a", lease=lease)
    assert cluster.leases == [lease]
    cluster.expire_lease(lease)
    assert cluster.leases == []
    assert keys(etcd) == []
    cluster.expire_lease(lease)


def test_compaction_refuses_the_past_and_the_future(cluster, etcd):
    revision = put(etcd, b"a")
    cluster.compact(revision)
    with pytest.raises(EtcdCompacted):
        cluster.compact(revision)
    with pytest.raises(EtcdError, match="future"):
        cluster.compact(revision + 1)


def test_restored_backup_is_another_cluster_with_the_old_revisions(cluster, clock, etcd):
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
    cluster.restore_backup(backup)  # the backup was not changed
    assert keys(cluster.client()) == [b"a"]


def test_pump_raises_the_error_of_a_delivery(cluster, etcd):
    def deliver(message):
        raise ZeroDivisionError

    etcd.watch(b"\0", END, 0, deliver)
    put(etcd, b"a")
    with pytest.raises(ZeroDivisionError):
        cluster.pump()
