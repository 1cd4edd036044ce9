"""Test the calls of every `rink.etcd.api.Etcd`, in memory and real.

`etcd_contract_streams` tests the streams. Both are collected twice, by
`tests/testing/test_memory_contract.py` and by `integration/testing/test_real_contract.py`, which
define the fixture `world`. Tests may share a server: each has its own prefix of keys, and none
expects absolute revisions.
"""

from __future__ import annotations

import pytest
from etcd_world import Seen, short

from rink.errors import EtcdError, EtcdTooLarge, EtcdUnavailable
from rink.etcd.api import Compare, Delete, Get, KeyValue, Put, TxnTarget

UNKNOWN_LEASE = 0x0BAD


# --------------------------------------------------------------------------- keys and revisions


def test_write_takes_one_revision_that_reads_return(world):
    before = world.revision()
    first = world.put("a", b"1")
    second = world.put("a", b"2")
    assert (first, second) == (before + 1, before + 2)
    answer = world.etcd.range(world.key("a"))
    assert answer.header.revision == second
    assert answer.kvs == (KeyValue(world.key("a"), b"2", first, second, 2, 0),)


def test_every_answer_has_the_same_cluster_and_term(world):
    headers = [
        world.etcd.range(world.key("a")).header,
        world.etcd.txn((), (Put(world.key("a"), b""),)).header,
        world.other.range(world.key("a")).header,
    ]
    assert len({(h.cluster_id, h.raft_term) for h in headers}) == 1
    assert headers[0].cluster_id > 0
    assert headers[0].raft_term > 0
    assert headers[0].member_id > 0


def test_range_is_ordered_by_key_and_ends_before_its_end(world):
    for name in ("c", "a/1", "b", "a"):
        world.put(name)
    assert world.names() == ["a", "a/1", "b", "c"]
    kvs = world.etcd.range(world.key("a"), world.key("b")).kvs
    assert [kv.key for kv in kvs] == [world.key("a"), world.key("a/1")]
    assert world.etcd.range(world.key("b"), world.key("a")).kvs == ()
    assert world.etcd.range(world.key("nothing")).kvs == ()


def test_range_end_of_one_zero_byte_has_no_end(world):
    world.put("a")
    world.put("b")
    kvs = world.etcd.range(world.key("b"), b"\0").kvs
    assert world.key("b") in [kv.key for kv in kvs]
    assert world.key("a") not in [kv.key for kv in kvs]


def test_keys_and_values_are_bytes(world):
    key = world.prefix + bytes(range(256))
    world.etcd.txn((), (Put(key, bytes(range(256))),))
    assert world.etcd.range(key).kvs[0].value == bytes(range(256))


def test_key_written_after_its_deletion_is_new(world):
    world.put("a")
    world.put("a")
    world.etcd.txn((), (Delete(world.key("a")),))
    revision = world.put("a", b"x")
    (kv,) = world.all()
    assert (kv.create_revision, kv.mod_revision, kv.version) == (revision, revision, 1)


def test_two_clients_share_keys_and_revisions(world):
    revision = world.put("a", b"1")
    answer = world.other.range(world.key("a"))
    assert answer.header.revision == revision
    assert answer.kvs[0].value == b"1"


# --------------------------------------------------------------------------- transactions


def test_transaction_with_many_changes_takes_one_revision(world):
    world.put("old-1")
    before = world.put("old-2")
    then = (Put(world.key("a"), b"1"), Delete(world.key("old"), world.key("old.")))
    result = world.etcd.txn((), (*then, Put(world.key("b"), b"2")))
    assert result.succeeded
    assert result.header.revision == before + 1
    assert result.results == ((), (), ())
    assert {(kv.create_revision, kv.mod_revision) for kv in world.all()} == {
        (before + 1, before + 1)
    }


def test_operation_sees_the_earlier_ones_of_its_branch(world):
    world.put("b")
    result = world.etcd.txn(
        (),
        (
            Get(world.prefix, world.end),
            Put(world.key("a"), b"1"),
            Delete(world.key("b")),
            Get(world.prefix, world.end),
        ),
    )
    before, _, _, after = result.results
    assert [kv.key for kv in before] == [world.key("b")]
    assert after == (
        KeyValue(world.key("a"), b"1", result.header.revision, result.header.revision, 1, 0),
    )


def test_failed_compare_runs_the_other_branch(world):
    revision = world.put("a", b"1")
    result = world.etcd.txn(
        (
            Compare(world.key("a"), TxnTarget.MOD, revision),
            Compare(world.key("a"), TxnTarget.VERSION, 2),
        ),
        (Put(world.key("a"), b"2"),),
        (Get(world.key("a")),),
    )
    assert not result.succeeded
    assert result.header.revision == revision
    assert result.results == ((KeyValue(world.key("a"), b"1", revision, revision, 1, 0),),)


@pytest.mark.parametrize("target", list(TxnTarget))
def test_every_target_of_a_missing_key_is_zero(world, target):
    absent = Compare(world.key("a"), target, 0)
    assert world.etcd.txn((absent,), (Put(world.key("a"), b""),)).succeeded
    assert not world.etcd.txn((absent,), (Put(world.key("a"), b""),)).succeeded


def test_each_target_compares_its_own_number(world):
    created = world.put("a")
    changed = world.put("a")
    for target, value in (
        (TxnTarget.CREATE, created),
        (TxnTarget.MOD, changed),
        (TxnTarget.VERSION, 2),
    ):
        assert world.etcd.txn((Compare(world.key("a"), target, value),), ()).succeeded
        assert not world.etcd.txn((Compare(world.key("a"), target, value + 1),), ()).succeeded


def test_compare_of_a_range_holds_if_it_holds_for_every_key(world):
    def holds(target, value, **fields):
        compare = Compare(world.prefix, target, value, range_end=world.end, **fields)
        return world.etcd.txn((compare,), ()).succeeded

    assert holds(TxnTarget.CREATE, 0), "an empty range counts as a missing key"
    assert holds(TxnTarget.MOD, 1, is_below=True)
    first = world.put("a")
    last = world.put("b")
    assert not holds(TxnTarget.CREATE, 0)
    assert not holds(TxnTarget.MOD, last)
    assert holds(TxnTarget.VERSION, 1)
    assert holds(TxnTarget.MOD, last + 1, is_below=True)
    assert not holds(TxnTarget.MOD, last, is_below=True)
    world.put("a")
    assert not holds(TxnTarget.VERSION, 1)
    assert holds(TxnTarget.CREATE, first + 2, is_below=True)


def test_transaction_that_changes_nothing_makes_no_revision(world):
    before = world.put("a")
    result = world.etcd.txn((), (Delete(world.key("b")), Get(world.key("a"))))
    assert result.header.revision == before
    assert world.etcd.txn((), ()).header.revision == before


def test_overlapping_deletes_are_one_deletion(world):
    before = world.put("a")
    watch_from = before + 1
    result = world.etcd.txn((), (Delete(world.key("a")), Delete(world.prefix, world.end)))
    seen = Seen()
    watch = world.etcd.watch(world.prefix, world.end, watch_from, seen.deliver)
    assert short(seen.events_until(result.header.revision), world) == [("a", None)]
    watch.close()


@pytest.mark.parametrize("branch", ["then", "otherwise"])
def test_key_changed_twice_in_a_branch_is_refused(world, branch):
    a, b = world.key("a"), world.key("b")
    for ops in (
        (Put(a, b"1"), Put(a, b"2")),
        (Put(a, b"1"), Delete(a)),
        (Delete(a, b), Put(a, b"1")),
    ):
        with pytest.raises(EtcdError, match="duplicate key"):
            world.etcd.txn((), **{"then": (), "otherwise": (), branch: ops})
    assert world.all() == ()
    assert world.etcd.txn((), (Put(a, b""),), (Delete(a),)).succeeded


def test_empty_key_is_refused(world):
    for op in (Put(b"", b""), Get(b""), Delete(b"")):
        with pytest.raises(EtcdError, match="key is not provided"):
            world.etcd.txn((), (op,))
    with pytest.raises(EtcdError, match="key is not provided"):
        world.etcd.txn((Compare(b"", TxnTarget.MOD, 0),), ())
    with pytest.raises(EtcdError, match="key is not provided"):
        world.etcd.range(b"")


def test_transaction_has_at_most_128_operations(world):
    ops = tuple(Put(world.key(f"{i:03}"), b"") for i in range(129))
    with pytest.raises(EtcdTooLarge, match="too many operations"):
        world.etcd.txn((), ops)
    assert world.all() == ()
    world.etcd.txn((), ops[:128])
    assert len(world.all()) == 128


def test_request_beyond_one_and_a_half_megabytes_is_refused(world):
    with pytest.raises(EtcdTooLarge, match="too large"):
        world.etcd.txn((), (Put(world.key("a"), bytes((3 << 19) + 1)),))
    assert world.all() == ()
    world.etcd.txn((), (Put(world.key("a"), bytes(1_500_000)),))


# --------------------------------------------------------------------------- leases


def test_lease_lasts_two_seconds_at_least(world):
    assert world.etcd.grant(1).ttl == 2
    granted = world.etcd.grant(5)
    assert granted.ttl == 5
    assert granted.lease > 0
    assert world.etcd.time_to_live(granted.lease) in (4, 5)


def test_every_grant_is_another_lease(world):
    assert len({world.etcd.grant(30).lease for _ in range(5)}) == 5


def test_lease_may_be_given_an_id_once(world):
    chosen = 0x1234_5678_9ABC
    assert world.etcd.grant(30, lease=chosen).lease == chosen
    with pytest.raises(EtcdError, match="lease already exists"):
        world.etcd.grant(30, lease=chosen)
    world.etcd.revoke(chosen)
    assert world.etcd.grant(30, lease=chosen).lease == chosen
    world.etcd.revoke(chosen)


def test_unknown_lease_has_no_time_to_live_and_may_be_revoked(world):
    assert world.etcd.time_to_live(UNKNOWN_LEASE) == -1
    before = world.revision()
    world.etcd.revoke(UNKNOWN_LEASE)
    assert world.revision() == before


def test_put_with_an_unknown_lease_refuses_the_whole_transaction(world):
    before = world.put("old")
    with pytest.raises(EtcdError, match="requested lease not found") as caught:
        world.etcd.txn(
            (),
            (
                Put(world.key("a"), b""),
                Delete(world.key("old")),
                Put(world.key("b"), b"", UNKNOWN_LEASE),
            ),
        )
    # The transaction was refused, so its result is known.
    assert not isinstance(caught.value, EtcdUnavailable)
    assert world.names() == ["old"]
    assert world.revision() == before


def test_unknown_lease_in_the_branch_not_taken_is_no_error(world):
    bad = (Put(world.key("a"), b"", UNKNOWN_LEASE),)
    assert world.etcd.txn((), (Put(world.key("b"), b""),), bad).succeeded


def test_revoking_deletes_all_keys_of_the_lease_in_one_revision_in_order(world):
    lease = world.etcd.grant(30).lease
    for name in ("c", "a", "b"):
        world.put(name, lease=lease)
    before = world.put("free")
    assert {kv.lease for kv in world.all()} == {lease, 0}
    world.etcd.revoke(lease)
    assert world.names() == ["free"]
    assert world.revision() == before + 1
    assert world.etcd.time_to_live(lease) == -1
    seen = Seen()
    watch = world.etcd.watch(world.prefix, world.end, before + 1, seen.deliver)
    assert short(seen.events_until(before + 1), world) == [("a", None), ("b", None), ("c", None)]
    watch.close()


def test_revoking_a_lease_without_keys_makes_no_revision(world):
    lease = world.etcd.grant(30).lease
    before = world.revision()
    world.etcd.revoke(lease)
    assert world.revision() == before


def test_key_belongs_to_the_lease_of_its_last_write(world):
    first, second = world.etcd.grant(30).lease, world.etcd.grant(30).lease
    world.put("moved", lease=first)
    world.put("moved", lease=second)
    world.put("freed", lease=first)
    world.put("freed")
    world.put("gone", lease=first)
    world.etcd.txn((), (Delete(world.key("gone")),))
    before = world.put("gone")
    world.etcd.revoke(first)
    assert world.names() == ["freed", "gone", "moved"]
    assert world.revision() == before
    world.etcd.revoke(second)
    assert world.names() == ["freed", "gone"]


def test_lease_that_ends_deletes_its_keys_in_one_revision(world):
    lease = world.etcd.grant(4).lease
    world.put("a", lease=lease)
    before = world.put("b", lease=lease)
    seen = Seen()
    watch = world.etcd.watch(world.prefix, world.end, before + 1, seen.deliver)
    world.pass_time(4.1)
    assert short(seen.events_until(before + 1), world) == [("a", None), ("b", None)]
    assert world.etcd.time_to_live(lease) == -1
    with pytest.raises(EtcdError, match="requested lease not found"):
        world.put("a", lease=lease)
    watch.close()
