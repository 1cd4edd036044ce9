"""Test `--once-per`: which member runs a slot, and what it may write.

The etcd is in memory.
"""

from __future__ import annotations

import attrs
import pytest

from rink.core.keys import Keys, SlotKeys
from rink.errors import EtcdUnavailable, RoleLost, StateError
from rink.etcd.api import Delete, Put
from rink.run.slots import MAX_KEPT_SLOTS, Slot, SlotRun, encode, look, minute_slot, read
from rink.testing.memory.cluster import MemoryCluster

GROUP = Keys.of("rink/", "g")
SLOTS = SlotKeys.of("rink/", "g", "r")


class Lossy:
    """Lose the next answers of an etcd, after the write was applied."""

    def __init__(self, etcd, lost=0):
        self._etcd, self.lost = etcd, lost

    def txn(self, *args, **more):
        result = self._etcd.txn(*args, **more)
        if self.lost:
            self.lost -= 1
            raise EtcdUnavailable("the answer was lost")
        return result


@pytest.fixture
def etcd():
    with MemoryCluster() as cluster:
        yield cluster.client()


def member(etcd, name, token, slot="s", over=None):
    """Return a member's run, and write the member's record."""
    key = GROUP.member(name)
    etcd.txn((), (Delete(key),))
    session = etcd.txn((), (Put(key, b"record"),)).header.revision
    mine = Slot(token=token, member=name)
    return SlotRun(over or etcd, SLOTS, slot, key, session, mine)


def test_slot_of_nobody_is_the_first_members(etcd):
    a, b = member(etcd, "a", 4), member(etcd, "b", 7)
    assert a.begin(retry_unfinished=False) is None
    assert b.begin(retry_unfinished=False) == a.mine
    assert look(etcd, SLOTS, "s").state == "started"


@pytest.mark.parametrize("retry", [False, True])
def test_slot_that_is_done_is_not_run_again(etcd, retry):
    a, b = member(etcd, "a", 4), member(etcd, "b", 7)
    a.begin(retry_unfinished=retry)
    a.finish(3)
    slot = b.begin(retry_unfinished=retry)
    assert (slot.code, slot.token, slot.state) == (3, 4, "done")


def test_slot_that_is_unfinished_is_run_again_if_asked(etcd):
    a, b = member(etcd, "a", 4), member(etcd, "b", 7)
    a.begin(retry_unfinished=True)
    assert b.begin(retry_unfinished=True) is None
    b.finish(0)
    assert look(etcd, SLOTS, "s").token == 7


def test_slot_taken_over_refuses_the_end_of_the_earlier_run(etcd):
    a, b = member(etcd, "a", 4), member(etcd, "b", 7)
    a.begin(retry_unfinished=True)
    b.begin(retry_unfinished=True)
    with pytest.raises(RoleLost, match="no longer this member's"):
        a.finish(0)
    assert look(etcd, SLOTS, "s").code is None


@pytest.mark.parametrize("is_there_again", [False, True])
def test_member_whose_session_has_ended_writes_nothing(etcd, is_there_again):
    """The member was paused until its lease had ended.

    It may have a new record.
    """
    a = member(etcd, "a", 4)
    key = GROUP.member("a")
    etcd.txn((), (Delete(key),))
    if is_there_again:
        etcd.txn((), (Put(key, b"record"),))
    with pytest.raises(RoleLost, match="has ended"):
        a.begin(retry_unfinished=True)
    assert look(etcd, SLOTS, "s") is None


def test_member_whose_session_has_ended_finishes_nothing(etcd):
    a = member(etcd, "a", 4)
    a.begin(retry_unfinished=False)
    etcd.txn((), (Delete(GROUP.member("a")),))
    with pytest.raises(RoleLost, match="has ended"):
        a.finish(0)
    assert look(etcd, SLOTS, "s").code is None


def test_lost_answer_to_started_is_recognised(etcd):
    over = Lossy(etcd, lost=1)
    a = member(etcd, "a", 4, over=over)
    with pytest.raises(EtcdUnavailable):
        a.begin(retry_unfinished=False)
    assert a.begin(retry_unfinished=False) is None
    a.finish(0)
    assert look(etcd, SLOTS, "s").code == 0


def test_slot_that_was_begun_and_not_started_is_begun_again(etcd):
    """The role was lost before the start, and is granted with a new token."""
    a, b = member(etcd, "a", 4), member(etcd, "b", 7)
    a.begin(retry_unfinished=False)
    assert b.begin(retry_unfinished=False) == a.mine
    again = member(etcd, "a", 9)
    again.mine = attrs.evolve(a.mine, token=9)
    assert again.begin(retry_unfinished=False) is None
    assert look(etcd, SLOTS, "s").token == 9
    again.finish(0)
    assert look(etcd, SLOTS, "s").code == 0


def test_slot_that_was_begun_and_taken_over_is_not_begun_again(etcd):
    a, b = member(etcd, "a", 4), member(etcd, "b", 7)
    a.begin(retry_unfinished=True)
    b.begin(retry_unfinished=True)
    b.finish(0)
    again = member(etcd, "a", 9)
    again.mine = attrs.evolve(a.mine, token=9)
    assert again.begin(retry_unfinished=True).state == "done"


def test_lost_answer_to_done_is_recognised(etcd):
    over = Lossy(etcd)
    a = member(etcd, "a", 4, over=over)
    a.begin(retry_unfinished=False)
    over.lost = 1
    with pytest.raises(EtcdUnavailable):
        a.finish(0)
    a.finish(0)
    assert look(etcd, SLOTS, "s").code == 0


def test_prune_keeps_the_newest_slots(etcd):
    for number in range(MAX_KEPT_SLOTS + 3):
        a = member(etcd, "a", number + 1, slot=f"s{number}")
        a.begin(retry_unfinished=False)
        a.finish(0)
    etcd.txn((), (Put(SlotKeys.of("rink/", "g", "r2").slot("s0"), b""),))  # of another role
    assert a.prune() == 3
    assert a.prune() == 0
    assert look(etcd, SLOTS, "s2") is None
    assert look(etcd, SLOTS, "s3") is not None
    assert len(etcd.range(b"rink/", b"rink0").kvs) == MAX_KEPT_SLOTS + 2


@pytest.mark.parametrize(
    "value",
    [b"", b"[]", b"{}", encode(Slot(token=1, member="a")).replace(b'"format":1', b'"format":2')],
)
def test_slot_that_cannot_be_read_is_an_error_that_names_its_key(etcd, value):
    key = SLOTS.slot("s")
    etcd.txn((), (Put(key, value),))
    with pytest.raises(StateError, match="rink/g:slots/r/s cannot be read") as caught:
        member(etcd, "a", 4).begin(retry_unfinished=True)
    assert caught.value.key == key.decode()


def test_slot_is_read_as_it_was_written(etcd):
    slot = attrs.evolve(Slot(token=4, member="ä"), done="2026-11-29T03:00:09Z", code=0)
    etcd.txn((), (Put(b"k", encode(slot)),))
    (found,) = etcd.range(b"k").kvs
    assert read(found) == slot


def test_minute_slot_is_the_minute_in_utc():
    assert minute_slot(0.0) == "1970-01-01T00:00Z"
    assert minute_slot(59.9) == "1970-01-01T00:00Z"
    assert minute_slot(86_400 * 365 + 61) == "1971-01-01T00:01Z"
