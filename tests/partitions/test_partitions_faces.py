"""A `PartitionedConsumer` as its user sees it: one suite for both faces."""

import contextlib

import pytest
from faces_support import LONG_S, records, until
from partitions_support import assigned_after, put, raw, stored, told

import rink
from rink import partitions
from rink.partitions import aio


def test_more_clients_than_partitions_and_the_extra_one_stands_by(world, apart):
    """Let the third consumer take over when the first one leaves."""
    members = [world.join(name, partitions=2) for name in ("c1", "c2", "c3")]
    c1, c2, c3 = [world.consumer(member, partitions=2) for member in members]
    with c1, c2, c3:
        assert assigned_after(c1, 1) == {0}
        assert assigned_after(c2, 1) == {1}
        assert c3.next_change(0.05) is None
        until(members[2], lambda: members[2].status().settled)
        rows = [(row.partition, row.owner, row.standby, row.offset) for row in c3.table()]
        assert rows == [(0, "c1", "c3", 0), (1, "c2", "c3", 0)]
        c1.commit(0, 7)
        leaving = apart(members[0].leave)
        change = c1.next_change(LONG_S)
        assert change.revoked
        c1.commit(0, 9)  # it may finish what it has begun
        change.assignment.release()
        leaving.result(LONG_S)
        change = c3.next_change(LONG_S)
        assert (change.partition, change.assigned, change.assignment.offset) == (0, True, 9)
        assert c2.next_change(0) is None


def test_more_partitions_than_clients_and_all_have_a_consumer(world):
    """Share three partitions between two consumers that stand by."""
    members = [world.join(name, partitions=3) for name in ("c1", "c2")]
    c1, c2 = [world.consumer(member, partitions=3) for member in members]
    with c1, c2:
        assert assigned_after(c1, 2) | assigned_after(c2, 1) == {0, 1, 2}
        rows = c1.table()
        assert {row.partition: (row.owner, row.standby) for row in rows} == {
            0: ("c1", "c2"), 1: ("c1", "c2"), 2: ("c2", "c1"),
        }  # fmt: skip


def test_only_what_moves_is_revoked_and_the_next_one_begins_at_its_offset(world):
    a = world.join("a")
    with world.consumer(a) as old:
        assert told(old, 4) == [(number, True) for number in range(4)]
        for number in range(4):
            old.commit(number, 10 + number)
        kept = dict(old.assigned)
        with world.consumer(world.join("b")) as new:
            assert told(old, 2) == [(2, False), (3, False)]
            assert set(old.assigned) == {0, 1}
            for number in (0, 1):
                assert not kept[number].lost.is_set()
                old.commit(number, 20)  # they go on
            assert new.next_change(0.05) is None
            for number in (3, 2):
                kept[number].commit(30 + number)
                kept[number].release()
            changes = [new.next_change(LONG_S) for _ in range(2)]
            found = {change.partition: change.assignment for change in changes}
            assert {number: one.offset for number, one in found.items()} == {2: 32, 3: 33}
            assert all(one.token > kept[number].token for number, one in found.items())
    assert stored(world.cluster, 3) | {"token": 0} == {
        "format": 1, "offset": 33, "token": 0, "member": "b", "partitions": 4,
    }  # fmt: skip


def test_commit_is_no_event_for_the_group(world):
    a = world.join("a")
    with world.consumer(a) as one:
        assigned_after(one, 4)
        assert a.wait_settled(LONG_S)
        before = a.status().revision
        one.commit(0, 1)
        assert world.cluster.store.revision > before
        assert a.status().revision == before


def test_committed_offset_never_goes_back(world):
    with world.consumer(world.join("a")) as one:
        assigned_after(one, 4)
        one.commit(0, 5)
        revision = world.cluster.store.revision
        one.commit(0, 5)  # it is committed
        assert world.cluster.store.revision == revision
        with pytest.raises(rink.UsageError, match=r"offset 4 of partition 0 .* is behind 5"):
            one.commit(0, 4)
        assert stored(world.cluster)["offset"] == 5
        one.commit(0, 2**63 - 1)


@pytest.mark.parametrize("offset", ["5", 1.0, True, None, -1, 2**63])
def test_offset_is_a_whole_number(world, offset):
    with world.consumer(world.join("a")) as one:
        assigned_after(one, 4)
        with pytest.raises(rink.ConfigError, match="offset"):
            one.commit(0, offset)


def test_what_is_not_here_is_not_committed(world):
    with world.consumer(world.join("a")) as one:
        assignment = one.next_change(LONG_S).assignment
        for number in (4, -1, "0", None):
            with pytest.raises(rink.UsageError, match="has partitions 0 to 3"):
                one.commit(number, 1)
        with pytest.raises(rink.RoleLost, match=r"not assigned to 'a'.*iterate the consumer"):
            one.commit((assignment.partition + 1) % 4, 1)
    with pytest.raises(rink.RoleLost, match="it was released here") as caught:
        assignment.commit(1)
    error = caught.value
    assert (error.role, error.group, error.member) == (assignment.role.name, "g", "a")
    assert error.token == assignment.token


def test_assignment_says_what_it_is(world):
    with world.consumer(world.join("a")) as one:
        assigned_after(one, 4)
        assignment = raw(one).assigned[2]
        assert (assignment.partition, assignment.offset, assignment.is_held) == (2, 0, True)
        assert assignment.token == assignment.role.token > 0
        assert f"'orders/2' offset=0 token={assignment.token} held>" in repr(assignment)
        assert "'orders' of <Rink 'g' as 'a'>" in repr(raw(one))
    assert not assignment.is_held
    assert repr(assignment).endswith("released>")


def test_who_gives_up_half_way_is_assigned_the_partition_again(world):
    with world.consumer(world.join("a")) as one:
        assigned_after(one, 4)
        with contextlib.suppress(ZeroDivisionError), one.assigned[1] as assignment:
            assignment.commit(3)
            raise ZeroDivisionError
        change = one.next_change(LONG_S)
        assert (change.partition, change.assigned, change.assignment.offset) == (1, True, 3)
        with pytest.raises(rink.RoleLost, match="released here"):
            assignment.commit(4)
        assignment.release()
        one.commit(1, 5)


def test_released_assignment_has_lost_set_and_the_next_one_has_not(world):
    with world.consumer(world.join("a")) as one:
        assigned_after(one, 4)
        old, late = one.assigned[1], one.assigned[2]
        lost = old.lost
        assert not lost.is_set()
        old.release()
        late.release()
        assert lost.is_set()
        assert late.lost.is_set()
        again = {change.partition: change.assignment for change in (
            one.next_change(LONG_S), one.next_change(LONG_S))}  # fmt: skip
        assert set(again) == {1, 2}
        assert not again[1].lost.is_set()
        lost = again[1].lost
    assert lost.is_set()


def test_with_on_a_released_assignment_is_refused(world):
    with world.consumer(world.join("a")) as one:
        assigned_after(one, 4)
        assignment = one.assigned[1]
        assignment.release()
        with pytest.raises(rink.UsageError, match="released before this `with`"), assignment:
            raise AssertionError("the body runs")


def test_assignments_released_again_and_again_leave_nothing_behind(world):
    with world.consumer(world.join("a")) as one:
        assigned_after(one, 4)
        assignment = one.assigned[1]
        waiting = len(raw(assignment).role._signal()._callbacks)
        for _ in range(5):
            assert not assignment.lost.is_set()
            assignment.release()
            assignment = one.next_change(LONG_S).assignment
        assert len(raw(assignment).role._signal()._callbacks) == waiting


def test_end_of_the_with_lets_go_of_everything(world):
    a = world.join("a")
    with world.consumer(a) as one:
        assigned_after(one, 4)
        assert len(a.status().held) == 4
    assert one.assigned == {}
    assert (a.status().held, a.status().waiting_for) == ({}, {})
    with world.consumer(a) as again:
        assert assigned_after(again, 4) == {0, 1, 2, 3}
    with pytest.raises(rink.UsageError, match="used before"), one:
        pass


def test_changes_end_when_the_group_is_left(world, apart):
    a = world.join("a")
    with world.consumer(a) as one:
        seen = apart(lambda: [_let_go(change) for change in one])
        until(a, lambda: len(one.assigned) == 4)
        a.leave()
        changes = seen.result(LONG_S)
        assert sorted(changes) == [(n, told) for n in range(4) for told in (False, True)]
        assert one.next_change() is None
    assert records(world) == set()


def _let_go(change):
    if change.revoked:
        change.assignment.release()
    return change.partition, change.assigned


def test_what_is_lost_before_it_was_told_is_let_go_of(world):
    """Nobody takes changes here, so nobody works."""
    a = world.join("a")
    with world.consumer(a) as slow, world.consumer(world.join("b")) as quick:
        assert assigned_after(quick, 2) == {2, 3}
        assert told(slow, 2) == [(0, True), (1, True)]
        assert slow.next_change(0) is None


def test_two_topics_of_one_group_are_apart(world):
    a = world.join("a")
    with world.consumer(a, "orders") as one, world.consumer(a, "BTC/ETH") as two:
        assigned_after(one, 4)
        assigned_after(two, 4)
        one.commit(0, 5)
        two.commit(0, 6)
        assert [one.table()[0].offset, two.table()[0].offset] == [5, 6]
        keys = [kv.key for kv in world.cluster.client().range(b"rink/g:", b"rink/g;").kvs]
    assert keys[0] == b"rink/g:offsets/BTC%2FETH/0"
    assert keys[4] == b"rink/g:offsets/orders/0"


# ── what is refused ──────────────────────────────────────────────────────────────────────────


def test_member_of_another_scheme_is_told_what_to_write(world):
    a = world.join("a", partitions=8)
    with pytest.raises(rink.ConfigError, match=r"write Rink.*scheme='balanced:4'"):
        world.consumer(a)


def test_group_with_a_leader_and_balanced_others_is_consumed(world):
    a = world.join("a", scheme="first:leader|balanced:2")
    with world.consumer(a, partitions=2):
        pass


def test_group_of_another_scheme_is_told_what_to_write(world):
    world.join("old", scheme="jump")
    member = world.make("new", scheme=["balanced:4", "jump"]).join()
    with (
        pytest.raises(rink.ConfigError, match=r"follows scheme 'jump' .*'balanced:4', 'jump'"),
        world.consumer(member),
    ):
        pass


def test_offsets_of_another_number_of_partitions_are_refused(world):
    """By who begins to consume, and by who comes to such an offset later."""
    put(world.cluster, 1, b'{"format":1,"offset":5,"token":1,"member":"x","partitions":8}')
    a = world.join("a")
    with (
        pytest.raises(
            rink.ConfigError, match=r"partitions=8 by the value of rink/g:offsets/orders/1"
        ),
        world.consumer(a),
    ):
        pass
    assert (a.status().held, a.status().waiting_for) == ({}, {})


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (b"", "is not JSON"),
        (b"[1]", "is not a JSON object"),
        (b'{"format":2}', "has format 2; this Rink reads format 1"),
        (b'{"format":1,"offset":5,"token":1,"member":"x"}', "lacks a field"),
        (b'{"format":1,"offset":-5,"token":1,"member":"x","partitions":4}', "another type"),
        (b'{"format":1,"offset":5,"token":1,"member":3,"partitions":4}', "another type"),
    ],
)
def test_offset_that_cannot_be_read_is_an_error_that_names_its_key(world, value, says):
    a = world.join("a")
    with world.consumer(a) as one:
        assigned_after(one, 4)
        put(world.cluster, 2, value)
        one.assigned[2].release()  # so that it is taken over anew
        for ask in (lambda: one.next_change(LONG_S), one.table):
            with pytest.raises(rink.StateError, match=says) as caught:
                ask()
            assert caught.value.key == "rink/g:offsets/orders/2"
        one.commit(0, 1)  # the others go on
        assert one.next_change(0) is None
    with pytest.raises(rink.StateError, match=says), world.consumer(a):
        pass


def test_commit_over_what_cannot_be_read_is_an_error(world):
    with world.consumer(world.join("a")) as one:
        assigned_after(one, 4)
        put(world.cluster, 2, b"{}")
        for _ in range(2):
            with pytest.raises(rink.StateError, match="has format None"):
                one.commit(2, 5)


def test_offset_whose_key_was_deleted_is_begun_anew_by_release(world):
    with world.consumer(world.join("a")) as one:
        assigned_after(one, 4)
        one.commit(0, 5)
        key = b"rink/g:offsets/orders/0"
        world.cluster.client().txn((), (rink.etcd.api.Delete(key),))
        for _ in range(2):
            with pytest.raises(rink.StaleToken, match="has been deleted") as caught:
                one.commit(0, 6)
            assert caught.value.newer == 0
        one.assigned[0].release()
        assert one.next_change(LONG_S).assignment.offset == 0


@pytest.mark.parametrize("count", [0, -1, 100_001, "4", True, 4.0, None])
def test_number_of_partitions_that_cannot_be_is_refused(world, count):
    with pytest.raises(rink.ConfigError, match="partitions"):
        world.consumer(world.make("a"), partitions=count)


def test_group_that_was_not_joined_cannot_be_consumed_in(world):
    member = world.make("a", scheme="balanced:4")
    with pytest.raises(rink.UsageError, match="has not been joined"), world.consumer(member):
        pass
    with pytest.raises(rink.ClosedError, match="inside the consumer's `with`"):
        world.consumer(member).next_change(0)


@pytest.mark.parametrize("timeout", [-1, "soon", float("nan")])
def test_timeout_that_is_none_is_refused(world, timeout):
    with world.consumer(world.join("a")) as one, pytest.raises(rink.ConfigError, match="timeout"):
        one.next_change(timeout)


def test_consumer_takes_a_rink():
    with pytest.raises(rink.UsageError, match=r"takes a rink\.Rink first"):
        partitions.PartitionedConsumer("orders", "orders", partitions=4)


def test_both_faces_have_the_same_names():
    assert partitions.__all__ == aio.__all__
    for name in ("Assignment", "PartitionedConsumer"):
        one, two = getattr(partitions, name), getattr(aio, name)
        public = [{n for n in dir(kind) if not n.startswith("_")} for kind in (one, two)]
        assert public[0] == public[1]
        assert one.__doc__ == two.__doc__
