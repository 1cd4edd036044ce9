"""Test R5 to R7 with one member: view, deadline, lost sessions."""

import pytest
from attrs import evolve
from world import ROLES, role_of

from rink.core import effects as do
from rink.core import events as ev
from rink.core.codec import encode
from rink.core.state_tables import LeaseState, Life, Write
from rink.core.values import Version
from rink.core.view import Gone

# ── R5, and what a view is made of ───────────────────────────────────────────────────────────


def test_list_from_before_the_view_ends_the_session(pair):
    """Take an older list for an etcd that was set back."""
    world = pair
    listed = world.etcd.listed()
    hold = world.get("a", role_of(0, 2))
    lease = world.node("a").member_lease.id
    world.add("c", rebalance_delay=0.0)
    world.sleep(0.1)
    world.tell("a", listed)
    assert hold.lost_at is not None
    assert "went back" in hold.lost_because
    world.sleep(0.1)
    assert lease not in world.etcd.leases
    assert world.node("a").member_lease.is_alive


def test_change_that_no_list_came_before_is_passed_over(pair):
    """Ignore events of the old watch after the history changed."""
    world = pair
    b = world.members["b"]
    role = role_of(0, 2)
    assert world.get("a", role)
    world.hold("b", "events")
    world.hold("a", "events")
    stray = Version(3, ("b",), "jump")
    world.etcd.put("versions/0000000000000003", encode(stray))
    b.listed = False
    old_watch = world.etcd.changes_after(world.etcd.revision - 1)
    world.tell("b", ev.HistoryChanged("another cluster"), old_watch)
    assert world.node("b").view.revision == 0
    assert world.get("b", role) is None
    world.let("b")
    assert world.get("b", role) is None


def test_changed_history_ends_the_session_and_joins_anew(pair):
    world = pair
    hold = world.get("b", role_of(1, 2))
    b = world.members["b"]
    old = b.node.member_lease.id
    b.listed = False
    world.tell("b", ev.HistoryChanged("the revision went back"))
    assert hold.lost_because == "the revision went back"
    assert b.made(do.RevokeLease) == [do.RevokeLease(old)]  # its record must not keep the name
    assert old not in world.etcd.leases
    world.sleep(1.0)
    assert b.node.member_lease.is_alive
    assert world.get("b", role_of(1, 2)) is None
    world.sleep(60.0)
    assert world.want("b", role_of(1, 2)).hold


def test_history_that_changes_while_no_lease_is_held_only_lists_anew(world):
    member = world.add("a", held=["requests"])
    member.listed = False
    world.tell("a", ev.HistoryChanged("x"))
    world.let("a")
    assert member.joined
    assert world.get("a", "x")


def test_new_list_brings_what_the_watch_missed(pair):
    world = pair
    b = world.members["b"]
    world.hold("b", "events")
    world.expire(world.kill("a"))
    b.listed = False
    world.let("b")
    assert world.ranks == ["b"]
    assert world.holders(ROLES) == dict.fromkeys(ROLES, "b")


def test_key_deleted_is_gone_from_the_view(pair):
    pair.etcd.put("notes", b"")
    pair.run()
    assert pair.node("a").view.clutter
    pair.etcd.delete("notes")
    pair.run()
    assert not pair.node("a").view.clutter
    assert isinstance(pair.etcd.log[-1][1][0], Gone)


# ── R6, R7: the session ──────────────────────────────────────────────────────────────────────


def test_at_the_deadline_every_role_is_lost_with_no_word_from_etcd(pair):
    world = pair
    hold = world.get("b", role_of(1, 2))
    b = world.members["b"]
    b.alive = False
    world.hold("b", "requests", "answers", "events")
    world.sleep(53.9)
    assert hold.lost_at is None
    world.sleep(0.2)
    assert hold.lost_at is not None
    assert b.node.member_lease.state is LeaseState.SUSPECT
    assert world.get("b", role_of(1, 2)) is None


def test_nothing_is_taken_at_the_deadline_even_before_anybody_noticed(pair):
    world = pair
    world.now += 54.0
    assert world.get("b", role_of(1, 2)) is None
    assert world.node("b").member_lease.is_alive


def test_keepalive_answered_after_the_deadline_loses_all_the_same(pair):
    world = pair
    hold = world.get("b", role_of(1, 2))
    b = world.members["b"]
    world.now += 54.5
    effects, revived = b.node.renew(world.now, b.node.member_lease.id, world.now, 0)
    assert [e.hold for e in effects if isinstance(e, do.Lose)] == [hold]
    assert revived


def test_revived_lease_grants_nothing_before_a_write_is_answered(pair):
    world = pair
    b = world.members["b"]
    writes = len(b.made(do.WriteRecord))
    b.alive = False
    world.sleep(55.0)
    world.hold("b", "answers")
    b.alive = True
    world.sleep(0.1)
    assert b.node.member_lease.is_alive
    assert world.get("b", role_of(1, 2)) is None
    assert len(b.made(do.WriteRecord)) == writes + 1
    world.let("b")
    assert world.get("b", role_of(1, 2))
    assert world.record("b").incarnation == b.node.writer.incarnation == "i2"


def test_answer_to_a_write_before_the_deadline_does_not_revive_grants(pair):
    world = pair
    b = world.members["b"]
    world.hold("b", "answers")
    world.add("c", rebalance_delay=0.0)
    world.sleep(0.1)
    assert world.ranks == ["a", "b", "c"]
    assert b.node.writer.state is Write.SENT
    b.alive = False
    world.sleep(55.0)
    b.alive = True
    world.keep_alive(b)
    assert b.node.member_lease.is_alive
    world.carry(b, "answers")
    assert not b.node.writer.is_settled
    assert b.node.table.gate.share is None
    world.let("b")
    assert b.node.table.gate.share is not None


def test_write_owed_while_the_lease_is_suspect_is_sent_when_it_revives(pair):
    world = pair
    b = world.members["b"]
    world.hold("b", "requests")
    b.node.writer.must_write = True
    world.tell("b", ev.Nudged())
    b.alive = False
    world.sleep(53.0)
    world.lose("b")
    assert b.node.writer.state is Write.OWED
    world.now += 2.0
    world.keep_alive(b)
    world.sleep(5.0)
    assert b.node.member_lease.state is LeaseState.SUSPECT
    assert b.node.writer.state is Write.OWED
    assert not any(isinstance(one, do.WriteRecord) for one in b.to_etcd)
    b.alive = True
    world.let("b")
    world.sleep(1.0)
    assert b.node.writer.is_settled
    assert world.get("b", role_of(1, 2))


def test_end_of_the_lease_that_is_told_twice_is_heard_once(pair):
    world = pair
    b = world.members["b"]
    old = b.node.member_lease.id
    world.etcd.end_lease(old)
    world.hold("b", "requests")
    world.tell("b", ev.LeaseEnded(old))
    assert (
        b.node.member_lease.state is LeaseState.REVOKING
        or b.node.member_lease.state is LeaseState.ASKED
    )
    world.tell("b", ev.LeaseEnded(old), ev.LeaseRevoked(old), ev.RevokeFailed(old, OSError()))
    world.tell("b", ev.LeaseEnded(old))
    world.let("b")
    world.sleep(1.0)
    assert b.node.member_lease.is_alive
    assert world.ranks.count("b") == 1


def test_deleted_record_ends_the_session_and_the_lease(pair):
    world = pair
    hold = world.get("b", role_of(1, 2))
    b = world.members["b"]
    old = b.node.member_lease.id
    world.etcd.delete("members/b")
    world.run()
    assert "the member's record is gone" in hold.lost_because
    assert old not in world.etcd.leases
    world.sleep(1.0)
    assert world.record("b").incarnation != "i2"
    assert b.node.table.gate.closed_because == ""


def test_deleted_record_is_noticed_by_the_answer_to_a_write_too(pair):
    world = pair
    b = world.members["b"]
    world.hold("b", "events")
    world.etcd.delete("members/b")
    b.node.writer.must_write = True
    world.tell("b", ev.Nudged())
    assert any("the member's record is gone" in text for text in b.reports)
    world.let("b")
    world.sleep(1.0)
    assert world.want("b", role_of(world.ranks.index("b"), 2)).hold


@pytest.mark.parametrize("by_hand", [b"?", b'{"format":1}'])
def test_record_overwritten_without_its_lease_ends_the_session(pair, by_hand):
    world = pair
    b = world.members["b"]
    world.etcd.put("members/b", by_hand)
    world.run()
    assert b.node.writer.state is Write.TAKEN
    world.sleep(200.0)
    assert b.node.writer.is_settled
    assert world.ranks == ["a", "b"]


def test_record_edited_in_place_is_put_right(pair):
    world = pair
    record, lease = world.record("b"), world.node("b").member_lease.id
    world.etcd.put("members/b", encode(evolve(record, shares=(), draining=("x",))), lease)
    world.run()
    assert world.record("b") == record
    assert world.node("b").table.gate.closed_because == ""


def test_lease_that_is_not_granted_to_a_member_is_asked_for_again(pair):
    world = pair
    b = world.members["b"]
    world.hold("b", "requests")
    world.tell("b", ev.LeaseEnded(b.node.member_lease.id))
    for _ in range(3):
        world.lose("b")
        world.sleep(3.0)
    world.let("b")
    world.etcd.end_lease(2)
    world.sleep(3.0)
    assert b.node.member_lease.is_alive
    assert "asking for a lease failed" in " ".join(b.reports)


def test_revocation_that_fails_is_asked_for_again_ever_more_rarely(pair):
    world = pair
    b = world.members["b"]
    world.hold("b", "requests")
    world.etcd.delete("members/b")
    world.run()
    waits = []
    for _ in range(7):
        before = world.now
        world.lose("b")
        while not b.to_etcd:
            world.sleep(max(b.node.wake_at - world.now, 0.001))
        waits.append(world.now - before)
    assert waits[-1] > 5 * waits[0]
    assert len(b.made(do.RevokeLease)) == 8
    world.let("b")
    world.sleep(1.0)
    assert b.node.member_lease.is_alive


def test_answer_about_a_lease_of_the_past_is_passed_over(pair):
    node = pair.node("b")
    before = node.member_lease.id, node.member_lease.state
    pair.tell("b", ev.LeaseEnded(99), ev.LeaseRevoked(99), ev.RevokeFailed(99, OSError()))
    assert (node.member_lease.id, node.member_lease.state) == before
    assert node.renew(pair.now, 99, pair.now, 0) == ([], False)


FAILED_LIST = ev.ListFailed(OSError("no answer"))


def test_list_that_fails_while_etcd_answers_is_warned_of(pair):
    b = pair.members["b"]
    pair.tell("b", FAILED_LIST)
    assert b.node.out.last_error == "reading the group failed: no answer"
    pair.sleep(20.0)
    pair.tell("b", FAILED_LIST)
    assert b.reports == ["reading the group failed: no answer"]
    assert b.node.living.state is Life.ACTIVE


def test_list_that_fails_in_an_outage_is_not_warned_of_beside_it(pair):
    b = pair.members["b"]
    b.alive = False
    for _ in range(10):
        pair.tell("b", FAILED_LIST)
        pair.sleep(2.0)
    assert b.node.out.last_error == "reading the group failed: no answer"
    assert b.reports == []


def test_list_that_fails_for_long_is_warned_of_beside_no_outage(world):
    """With a long TTL no keepalive is due for long."""
    b = world.add("b", ttl=3600)
    world.tell("b", FAILED_LIST)
    b.alive = False
    world.sleep(61.0)
    world.tell("b", FAILED_LIST)
    assert b.reports == ["reading the group failed: no answer"]


def test_list_that_succeeds_ends_the_failure(pair):
    b = pair.members["b"]
    pair.tell("b", FAILED_LIST)
    b.listed = False
    pair.sleep(20.0)
    pair.tell("b", FAILED_LIST)
    assert b.reports == []
