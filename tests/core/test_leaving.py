"""Test leaving: serve until a version without the member, then let go."""

import math

import pytest
from world import KINDS, ROLES, World, role_of

from rink.core import effects as do
from rink.core import events as ev
from rink.core.codec import encode
from rink.core.member_record import MemberRecord, Phase
from rink.core.state_tables import Life, Write
from rink.core.values import Version


def test_leaver_serves_until_a_version_leaves_it_out(pair):
    world = pair
    world.hold("a", "requests")
    hold = world.get("b", role_of(1, 2))
    world.leave("b")
    assert world.record("b").phase is Phase.LEAVING
    assert world.node("b").living.state is Life.LEAVING
    assert hold.lost_at is None
    assert world.get("b", role_of(1, 2, skip=1))
    world.let("a")
    assert world.ranks == ["a"]
    world.sleep(0.1)
    assert "b" not in world.members
    assert world.holders(ROLES) == dict.fromkeys(ROLES, "a")


def test_leaving_coordinator_is_followed_by_the_oldest_active(pair):
    leases = set(pair.etcd.leases)
    a = pair.members["a"]
    pair.leave("a")
    assert pair.version.by == "b"
    assert pair.ranks == ["b"]
    assert a.left
    assert pair.etcd.leases == leases - {a.node.member_lease.id}
    assert pair.node("b").coordinates


@pytest.mark.parametrize("steps", range(12))
def test_hand_over_ends_wherever_its_traffic_pauses(steps):
    world = World()
    for name in "ab":
        world.add(name, rebalance_delay=0.0)
    world.sleep(1.0)
    role = role_of(0, 2)
    world.get("a", role)
    wait = world.want("b", role)
    world.hold("a", *KINDS)
    world.hold("b", *KINDS)
    world.leave("a")
    for _ in range(steps):
        any(world.carry(m, kind) for kind in KINDS for m in list(world.members.values()))
    world.sleep(3.0)
    for name in list(world.members):
        world.let(name)
    world.sleep(1.0)
    assert wait.hold
    assert list(world.members) == ["b"]


def test_leaver_without_a_version_goes_after_its_timeout(pair):
    world = pair
    b = world.members["b"]
    hold = world.get("b", role_of(1, 2))
    world.hold("a", *KINDS)
    world.leave("b")
    world.sleep(9.0)
    assert hold.lost_at is None
    world.sleep(1.5)
    assert hold.lost_at is not None
    assert b.left
    assert any(
        "no version has given its rank to another member within 10 s" in text for text in b.reports
    )


def proclaim_every_8_s(world, *versions):
    """Proclaim (ranks, pins) as another coordinator would; b is told at once."""
    for number, (ranks, pins) in enumerate(versions, start=3):
        world.sleep(8.0)
        value = encode(Version(number, ranks, "jump", pins=pins))
        world.etcd.put(f"versions/{number:016d}", value)


def test_leaver_waits_anew_when_the_ranks_of_others_change(pair):
    world = pair
    world.hold("a", *KINDS)
    world.leave("b")
    proclaim_every_8_s(world, (("a", "b", "c"), {}), (("a", "b"), {}), (("a", "b", "d"), {}))
    world.sleep(8.0)
    assert world.node("b").living.state is Life.LEAVING
    world.sleep(3.0)
    assert "b" not in world.members


def test_leaver_does_not_wait_anew_when_only_pins_change(pair):
    """Keep requests from prolonging a leave.

    With `stagger`, a leaked handle may hold up all turns.
    """
    world, b = pair, pair.members["b"]
    world.hold("a", *KINDS)
    world.leave("b")
    proclaim_every_8_s(world, (("a", "b"), {"x": "a"}), (("a", "b"), {}))
    assert b.left
    assert any("leaves without a successor" in text for text in b.reports)


def test_last_member_leaves_at_once(world):
    member = world.add("a")
    world.holders(ROLES)
    world.leave("a")
    assert member.left
    assert sorted(member.lost) == sorted(ROLES)
    assert not world.etcd.leases
    assert world.ranks == ["a"]


def test_all_members_leaving_at_once_do_not_wait_for_each_other(pair):
    started = pair.now
    for member in list(pair.members.values()):
        pair.step(member, [ev.LeaveAsked()])
    pair.run()
    pair.sleep(0.1)
    assert not pair.members
    assert pair.now - started < 1.0
    assert not pair.etcd.leases


def test_member_that_is_not_ranked_leaves_at_once(world):
    world.add("a")
    member = world.add("b")
    world.leave("b")
    assert member.left
    assert world.version.number == 1


def test_keeping_the_rank_skips_the_phase_and_moves_nothing(world):
    for name in "ab":
        world.add(name, rebalance_delay=0.0, leave_delay=30.0)
    world.sleep(0.1)
    number = world.version.number
    before = world.holders(ROLES)
    phases = len(world.members["b"].made(do.WriteRecord))
    b = world.members["b"]
    world.leave("b", keep_rank=True)
    assert b.left
    assert len(b.made(do.WriteRecord)) == phases
    world.sleep(20.0)
    world.add("b", rebalance_delay=0.0, leave_delay=30.0)
    assert world.version.number == number
    assert world.holders(ROLES) == before


def test_second_leave_is_more_urgent(pair):
    world = pair
    b = world.members["b"]
    world.hold("a", *KINDS)
    world.leave("b")
    assert world.node("b").living.state is Life.LEAVING
    world.leave("b")
    assert world.node("b").living.state is Life.LEAVING  # one like the first changes nothing
    world.leave("b", release_within=1.0)
    assert b.left
    assert world.etcd.leases == {1}


def test_second_leave_bounds_the_wait_of_the_first(pair):
    world = pair
    b = world.members["b"]
    b.lets_go = False
    world.get("b", role_of(1, 2))
    world.leave("b", release_within=math.inf)
    world.sleep(60.0)
    assert world.node("b").living.state is Life.LETTING_GO
    world.leave("b", release_within=3.0)
    world.sleep(2.5)
    assert not b.left
    world.sleep(1.0)
    assert b.left


def test_leaving_twice_more_changes_nothing(pair):
    b = pair.members["b"]
    pair.hold("b", "requests")
    pair.leave("b", keep_rank=True)
    state = b.node.living.state
    assert state is Life.REVOKING
    pair.leave("b")
    pair.leave("b", release_within=0.0)
    assert b.node.living.state is state
    pair.let("b")
    assert b.left
    b.node.step(pair.now, [ev.LeaveAsked()])
    assert b.node.living.state is Life.LEFT


def test_wait_for_handles_is_counted_from_the_loss(pair):
    """Leave user code its time, also after a long wait for a version."""
    world = pair
    b = world.members["b"]
    b.lets_go = False
    hold = world.get("b", role_of(1, 2))
    world.hold("a", *KINDS)
    world.leave("b", release_within=5.0)
    world.sleep(4.0)
    world.let("a")
    world.sleep(4.0)
    assert hold.lost_at is not None
    assert not b.left
    world.sleep(2.0)
    assert b.left


def test_leaver_that_only_lets_go_is_given_no_rank(pair):
    """Give no rank to a member that only waits for its handles."""
    world = pair
    b = world.members["b"]
    b.lets_go = False
    hold = world.get("b", role_of(1, 2))
    world.hold("a", *KINDS)
    world.etcd.put("versions/0000000000000003", encode(Version(3, ("a",), "jump")))
    world.run()
    assert hold.lost_at is not None
    world.leave("b", release_within=math.inf)
    world.sleep(1.0)
    assert world.node("b").living.state is Life.LETTING_GO
    assert world.record("b").phase is Phase.LEAVING
    world.let("a")
    world.sleep(100.0)
    assert world.ranks == ["a"]
    world.release("b", hold)
    assert b.left


def test_whoever_lets_go_is_granted_nothing_more(pair):
    b = pair.members["b"]
    b.lets_go = False
    hold = pair.get("b", role_of(1, 2))
    pair.leave("b", keep_rank=True)
    assert hold.lost_at is not None
    assert b.node.living.state is Life.LETTING_GO
    assert pair.get("b", role_of(1, 2, skip=1)) is None
    assert pair.want("b", role_of(1, 2, skip=2)).hold is None
    assert b.node.table.gate.closed_because == "the member is letting go"


def test_leave_while_the_session_is_lost_waits_for_no_version(pair):
    b = pair.members["b"]
    b.alive = False
    pair.hold("b", *KINDS)
    pair.sleep(55.0)
    pair.leave("b")
    assert b.node.living.state is Life.REVOKING
    pair.let("b")
    assert b.left
    assert len(pair.etcd.leases) == 1


def test_session_lost_while_leaving_ends_the_leave(pair):
    b = pair.members["b"]
    pair.hold("a", *KINDS)
    pair.leave("b")
    pair.etcd.end_lease(b.node.member_lease.id)
    pair.run()
    assert b.left


def test_lease_that_cannot_be_revoked_ends_by_itself(pair):
    b = pair.members["b"]
    pair.hold("b", "requests")
    pair.leave("b", keep_rank=True)
    pair.lose("b")
    pair.sleep(9.0)
    assert not b.left
    pair.sleep(1.5)
    assert b.left
    assert any("could not be revoked: it runs out within 60 s" in t for t in b.reports)


def test_lease_that_ends_before_its_revocation_ends_the_leave(pair):
    b = pair.members["b"]
    pair.hold("b", "requests")
    pair.leave("b", keep_rank=True)
    assert b.node.living.state is Life.REVOKING
    pair.tell("b", ev.LeaseEnded(b.node.member_lease.id))
    assert b.left
    assert not any("lost its session" in text for text in b.reports)


def test_leave_while_another_has_the_name_does_not_wait_for_a_version(pair):
    world = pair
    b = world.members["b"]
    world.etcd.leases.add(77)
    world.etcd.put("members/b", encode(MemberRecord("other", 60)), 77)
    world.run()
    world.sleep(0.5)
    assert b.node.writer.state is Write.TAKEN
    lines = len(b.reports)
    world.leave("b")
    assert b.left
    assert len(b.reports) == lines
    assert world.record("b").incarnation == "other"


@pytest.mark.parametrize("keep_rank", [False, True])
@pytest.mark.parametrize("steps", range(10))
def test_leave_whose_answers_are_lost_leaves_no_live_lease(steps, keep_rank):
    world = World()
    for name in "ab":
        world.add(name, rebalance_delay=0.0)
    world.sleep(1.0)
    b = world.members["b"]
    world.hold("b", *KINDS)
    world.leave("b", keep_rank=keep_rank)
    for step in range(steps):
        if b.to_etcd and step % 2:
            world.lose("b", answer=step % 4 == 1)
        any(world.carry(b, kind) for kind in KINDS)
        if b.left:
            break
    if not b.left:
        world.let("b")
        world.sleep(20.0)
    assert b.left
    while world.late:
        world.thaw()
    assert world.etcd.leases == {1}
