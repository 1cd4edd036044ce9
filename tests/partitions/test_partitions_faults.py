"""Check partitions under faults: stale commits are refused."""

import threading

import pytest
from faces_support import LONG_S, QUICK
from partitions_support import TTL_S, Worker, pair, settle, stored

import rink
from rink.partitions import PartitionedConsumer

# ── who has gone on too long ─────────────────────────────────────────────────────────────────


def test_commit_after_a_freeze_is_refused(time):
    a, b = pair(time)
    b.consumer.commit(2, 5)
    frozen = b.consumer.assigned[2]
    b.crash()
    time.advance(1.5 * TTL_S)
    settle(time, a)
    assert a.partitions == {0, 1, 2, 3}
    assert a.consumer.assigned[2].offset == 5
    a.consumer.commit(2, 8)
    b.etcd.heal()
    with pytest.raises(rink.StaleToken, match="'a' has taken over at 8") as caught:
        frozen.commit(6)
    error = caught.value
    assert (error.role, error.group, error.member) == ("orders/2", "g", "b")
    assert (error.token, error.newer) == (frozen.token, a.consumer.assigned[2].token)
    assert error.newer > error.token
    with pytest.raises(rink.StaleToken):
        frozen.commit(9)
    assert stored(time.cluster, 2)["offset"] == 8
    a.consumer.commit(2, 9)


def test_commit_after_a_lost_session_is_refused_before_any_takeover(time):
    """Only the compare on the member's record tells: nobody else is there."""
    a = Worker(time, "a")
    settle(time, a)
    old = a.consumer.assigned[0]
    a.consumer.commit(0, 5)
    a.crash()
    time.advance(2 * TTL_S)
    a.etcd.heal()
    assert old.lost.is_set()
    with pytest.raises(rink.StaleToken, match=r"session .* is lost") as caught:
        old.commit(6)
    assert (stored(time.cluster)["offset"], caught.value.newer) == (5, 0)


def test_commit_after_grace_is_refused_as_soon_as_another_has_taken_over(time):
    """Only the compare on the offset's key shows it: the record is unchanged."""
    a = Worker(time, "a", grace=3.0)
    settle(time, a)
    b = Worker(time, "b", grace=3.0)
    time.advance(2.0)
    assert a.look(lets_go=False) == [(2, False), (3, False)]
    assert b.look() == []
    a.consumer.commit(2, 5)  # it is still its own
    slow = a.consumer._held_partitions.delivered()[2].assignment
    time.advance(2.0)
    assert b.look() == [(2, True), (3, True)]
    assert b.consumer.assigned[2].offset == 5
    with pytest.raises(rink.StaleToken, match="'b' has taken over at 5"):
        slow.commit(6)
    b.consumer.commit(2, 6)
    slow.release()
    settle(time, a, b)


def test_rejoin_begins_at_what_is_committed_under_a_greater_token(time):
    a = Worker(time, "a")
    settle(time, a)
    a.consumer.commit(0, 5)
    before = a.consumer.assigned[0]
    a.crash()
    time.advance(2 * TTL_S)
    a.etcd.heal()
    time.advance(5.0)
    settle(time, a)
    after = a.consumer.assigned[0]
    assert (after.offset, after.token > before.token) == (5, True)
    after.commit(6)
    with pytest.raises(rink.RoleLost, match="released here"):
        before.commit(7)


def test_deadline_before_the_records_end_revokes_all_and_lets_finish(time):
    """The same lease is requested again (R7), so a commit still counts."""
    a = Worker(time, "a", ttl=10.0, margin=4.0)
    settle(time, a)
    old = a.consumer.assigned[0]
    a.crash()
    time.advance(6.5)
    assert old.lost.is_set()
    a.etcd.heal()
    assert (0, False) in a.look(lets_go=False)
    old.commit(6)
    for held in a.consumer._held_partitions.delivered().values():
        held.assignment.release()
    time.advance(1.0)
    settle(time, a)
    again = a.consumer.assigned[0]
    assert (again.offset, again.token > old.token) == (6, True)


# ── answers that are lost, and transactions that come late ───────────────────────────────────


def test_commit_without_an_answer_that_was_applied_is_found(time):
    a = Worker(time, "a")
    settle(time, a)
    a.etcd.lose_next_answer()
    with pytest.raises(rink.EtcdUnavailable):
        a.consumer.commit(0, 5)
    assert stored(time.cluster)["offset"] == 5
    assert a.consumer.assigned[0].offset == 0  # by the last answer
    a.consumer.commit(0, 7)
    assert stored(time.cluster)["offset"] == 7


def test_commit_without_an_answer_is_settled_by_the_very_same(time):
    a = Worker(time, "a")
    settle(time, a)
    a.etcd.lose_next_answer()
    with pytest.raises(rink.EtcdUnavailable):
        a.consumer.commit(0, 5)
    a.consumer.commit(0, 5)
    assert a.consumer.assigned[0].offset == 5


@pytest.mark.parametrize("then", [5, 6, 4])
def test_commit_that_comes_late_is_refused_once_the_next_has_settled_it(time, then):
    a = Worker(time, "a")
    settle(time, a)
    a.consumer.commit(0, 3)
    held = a.etcd.hold_next_txn()
    with pytest.raises(rink.EtcdUnavailable):
        a.consumer.commit(0, 5)
    a.consumer.commit(0, then)  # 5 was never committed: 4 is not behind anything
    assert not held.apply().succeeded
    assert stored(time.cluster)["offset"] == a.consumer.assigned[0].offset == then
    a.consumer.commit(0, 9)


def test_smaller_offset_settles_and_is_refused_after_a_greater_commit(time):
    a = Worker(time, "a")
    settle(time, a)
    a.etcd.lose_next_answer()
    with pytest.raises(rink.EtcdUnavailable):
        a.consumer.commit(0, 5)
    with pytest.raises(rink.UsageError, match="is behind 5, which is committed"):
        a.consumer.commit(0, 4)


def test_applied_one_of_several_unanswered_commits_is_found(time):
    a = Worker(time, "a")
    settle(time, a)
    late = []
    for offset in (5, 6, 7):
        late.append(a.etcd.hold_next_txn())
        with pytest.raises(rink.EtcdUnavailable):
            a.consumer.commit(0, offset)
    assert late[1].apply().succeeded
    assert not late[2].apply().succeeded
    a.consumer.commit(0, 8)
    assert not late[0].apply().succeeded
    assert stored(time.cluster)["offset"] == 8


def test_stale_commit_that_comes_after_the_next_take_is_refused(time):
    a = Worker(time, "a")
    settle(time, a)
    a.consumer.commit(3, 5)
    held = a.etcd.hold_next_txn()
    with pytest.raises(rink.EtcdUnavailable):
        a.consumer.commit(3, 6)
    b = Worker(time, "b")
    settle(time, a, b)
    assert b.consumer.assigned[3].offset == 5
    assert not held.apply().succeeded
    b.consumer.commit(3, 7)
    assert stored(time.cluster, 3)["offset"] == 7


def test_stale_commit_that_comes_amid_the_next_take_is_begun_behind(time):
    """The take has read the key, and not written it yet."""
    a = Worker(time, "a")
    settle(time, a)
    held = a.etcd.hold_next_txn()
    with pytest.raises(rink.EtcdUnavailable):
        a.consumer.commit(3, 6)
    b = Worker(time, "b")
    send = b.etcd.txn

    def amid(compare, then, otherwise=(), **how):
        is_second_take = any(one.key.endswith(b"/3") and one.value for one in compare)
        if is_second_take and ":offsets" in str(then) and not applied:
            applied.append(held.apply())
        return send(compare, then, otherwise, **how)

    applied = []
    b.etcd.txn = amid
    settle(time, a, b)
    assert [result.succeeded for result in applied] == [True]
    assert b.consumer.assigned[3].offset == 6


def test_take_without_an_answer_is_sent_again(time):
    a = Worker(time, "a")
    settle(time, a)
    a.consumer.commit(0, 5)
    for fault in ("lose_next_answer", "hold_next_txn"):
        held = getattr(a.etcd, fault)()
        a.consumer.assigned[0].release()  # taken over anew
        settle(time, a)
        time.advance(5.0)
        settle(time, a)
        assert a.consumer.assigned[0].offset == 5
        if held is not None:
            assert not held.apply().succeeded
        a.consumer.commit(0, 5)
    a.consumer.commit(0, 6)


def test_partition_that_is_lost_while_it_is_taken_over_is_never_told(time):
    a = Worker(time, "a")
    settle(time, a)
    b = Worker(time, "b")
    held = hold_takes(b.etcd)
    settle(time, a, b)
    assert b.partitions == set()
    b.leave()
    time.advance(0.1)
    b.etcd.txn = held.send
    settle(time, a, b)
    assert a.partitions == {0, 1, 2, 3}
    assert b.look() == []
    a.consumer.commit(3, 5)
    for txn in held.txns:
        assert not b.etcd.cluster.client().txn(*txn).succeeded
    a.consumer.commit(3, 6)


class hold_takes:  # noqa: N801 - reads as a verb
    """Keep every transaction on offsets from etcd, without an answer."""

    def __init__(self, etcd):
        self.send, self.txns, etcd.txn = etcd.txn, [], self

    def __call__(self, compare, then, otherwise=(), **how):
        if b":offsets/" not in compare[-1].key:
            return self.send(compare, then, otherwise, **how)
        self.txns.append((compare, then, otherwise))
        raise rink.EtcdUnavailable("held")


def test_take_that_hangs_delays_no_revocation(time, apart):
    """The take is under way until the test ends it, as on a slow etcd."""
    a = Worker(time, "a")
    settle(time, a)
    begun, go_on, send = threading.Event(), threading.Event(), a.etcd.txn

    def hang(compare, then, otherwise=(), **how):
        if compare[-1].key.endswith(b"orders/0"):
            begun.set()
            go_on.wait(3 * LONG_S)
        return send(compare, then, otherwise, **how)

    a.etcd.txn = hang
    try:
        a.consumer.assigned[0].release()
        assert begun.wait(LONG_S)
        role = a.consumer.assigned[3].role
        time.cluster.expire_lease(a.member._opened.node.member_lease.id)
        time.cluster.pump()
        assert role.lost.wait(LONG_S)
        assert apart(a.consumer.next_change).result(LONG_S).revoked
    finally:
        go_on.set()
    time.settle()
    a.look()


def test_worker_that_gave_up_cannot_commit_after_the_next_assignment(time):
    """Under the same token: the role was held all the while."""
    a = Worker(time, "a")
    settle(time, a)
    old = a.consumer.assigned[0]
    old.commit(5)
    held = a.etcd.hold_next_txn()
    with pytest.raises(rink.EtcdUnavailable):
        old.commit(7)
    old.release()
    settle(time, a)
    new = a.consumer.assigned[0]
    assert (new.token, new.offset) == (old.token, 5)
    assert not held.apply().succeeded
    new.commit(6)


def test_failed_etcd_is_tried_again_ever_more_rarely(time, caplog):
    a = Worker(time, "a")
    settle(time, a)
    held = hold_takes(a.etcd)
    a.consumer.assigned[1].release()
    time.advance(8.0)
    assert 5 <= len(held.txns) <= 30
    assert "partition 1 of topic 'orders' of group 'g': taking over failed, retry" in caplog.text
    a.etcd.txn = held.send
    time.advance(3.0)
    settle(time, a)
    assert a.partitions == {0, 1, 2, 3}


def test_restored_etcd_ends_what_was_assigned_before(time):
    a = Worker(time, "a")
    settle(time, a)
    old = a.consumer.assigned[0]
    backup = time.cluster.backup()
    old.commit(5)
    time.cluster.restore_backup(backup)
    with pytest.raises(rink.EtcdClusterChanged):
        old.commit(6)
    with pytest.raises(rink.StaleToken, match="restored"):
        old.commit(7)
    time.advance(30.0)
    settle(time, a)
    assert a.consumer.assigned[0].offset == 0  # as the backup has it
    a.consumer.commit(0, 8)


def test_greater_token_in_the_key_is_an_error_that_says_what_to_do(time):
    a = Worker(time, "a")
    settle(time, a)
    key = a.consumer._topic.keys.partition(0)
    value = b'{"format":1,"offset":5,"token":99999,"member":"x","partitions":4}'
    time.cluster.client().txn((), (rink.etcd.api.Put(key, value),))
    a.consumer.assigned[0].release()
    time.advance(0.1)
    with pytest.raises(rink.StaleToken, match="token_base above") as caught:
        a.consumer.next_change(0)
    assert caught.value.newer == 99999
    a.consumer.commit(1, 5)
    assert a.look() == []


def test_two_consumers_of_one_topic_in_one_member_are_told_apart(time):
    """The second consumer's take ends the commits of the first.

    Two consumers in one member are a mistake, and both have the same token.
    """
    a = Worker(time, "a")
    settle(time, a)
    with PartitionedConsumer(a.member, "orders", partitions=4) as other:
        time.settle()
        assert other.next_change(0).partition == 0
        with pytest.raises(rink.StaleToken, match="another consumer of this member"):
            a.consumer.commit(0, 1)
        other.commit(0, 2)


def test_group_of_no_version_yet_is_taken_at_its_word(time):
    session = time.session()
    member = rink.Rink(session, "g", name="x", scheme="balanced:4", **QUICK).join()
    with PartitionedConsumer(member, "orders", partitions=4) as one:
        time.settle()
        assert one.next_change(0).assigned
