"""R2: what one member is granted, and when."""

import pytest
from attrs import evolve
from world import ROLES, role_of

from rink.core import effects as do
from rink.core import events as ev
from rink.core.codec import encode
from rink.core.placement import Placement
from rink.core.state_tables import Write
from rink.core.values import Version


def test_member_alone_is_granted_everything_within_its_join(world):
    member = world.add("a")
    assert member.joined
    assert member.node.is_settled
    assert world.holders(ROLES) == dict.fromkeys(ROLES, "a")
    assert member.ranks == [0]
    assert member.made(do.CoordinatorChanged) == [do.CoordinatorChanged(True)]


def test_nothing_is_granted_before_the_watch_shows_the_own_record(world):
    world.add("a", held=["events"])
    world.carry(world.members["a"], "events")
    world.run()
    assert world.node("a").writer.is_settled
    assert world.get("a", "x") is None
    world.let("a")
    assert world.get("a", "x")


def test_nothing_is_granted_while_a_write_is_unanswered(pair):
    pair.hold("b", "answers")
    pair.leave("a")
    role = role_of(1, 2)
    assert pair.node("b").writer.state is Write.SENT
    assert pair.get("b", role) is None
    pair.let("b")
    assert pair.get("b", role)


def test_very_step_that_sends_a_write_closes_the_gate(pair):
    """Close the gate before any caller comes (R2).

    A caller may come before the next step, with an older gate.
    """
    node = pair.node("b")
    gate = node.table.gate
    assert gate.share is not None
    effects = node.step(pair.now, [ev.LeaveAsked()])
    assert [type(effect) for effect in effects] == [do.WriteRecord]
    assert node.table.gate is not gate
    assert node.table.gate.share is None


def test_role_is_granted_only_when_no_other_record_claims_it(pair):
    world = pair
    role = role_of(0, 2)
    world.members["a"].lets_go = False
    held = world.get("a", role)
    wait = world.want("b", role)
    world.leave("a")
    world.sleep(0.1)
    assert world.ranks == ["b"]
    assert wait.hold is None
    assert "a: has not released it yet" in world.node("b").table.gate.obstacle(role, Placement())
    world.release("a", held)
    assert wait.hold.token > held.token
    assert "a" not in world.members


def test_role_lost_and_regained_waits_for_the_handle_of_the_first_grant(pair):
    world = pair
    role = role_of(1, 2)
    world.expire(world.kill("b"))
    assert world.ranks == ["a"]
    world.members["a"].lets_go = False
    first = world.get("a", role)
    world.add("b", rebalance_delay=0.0)
    world.sleep(1.0)
    assert world.ranks == ["a", "b"]
    assert first.lost_at is not None
    world.expire(world.kill("b"))
    assert world.ranks == ["a"]
    wait = world.want("a", role)
    assert world.get("a", role) is None
    assert wait.hold is None
    assert first.lost_at is not None
    world.release("a", first)
    assert wait.hold is not first


def test_role_given_back_before_its_loss_was_seen_is_never_lost(pair):
    world = pair
    role = role_of(0, 2)
    hold = world.get("a", role)
    world.hold("a", "events")
    for number, ranks in [(3, ("b",)), (4, ("a", "b"))]:
        version = Version(number, ranks, "jump")
        world.etcd.put(f"versions/{number:016d}", encode(version))
    world.run()
    assert world.want("b", role).hold is None
    changes = tuple(c for r, cs in world.etcd.log if r > world.members["a"].seen for c in cs)
    world.members["a"].seen = world.etcd.revision
    world.tell("a", ev.Changed(world.etcd.revision, changes))
    world.let("a")
    assert hold.lost_at is None
    assert world.get("a", role) is hold


def test_thousand_waiters_are_granted_in_one_step(world):
    roles = [f"job-{index}" for index in range(1000)]
    member = world.add("a", held=["answers"])
    waits = [world.want("a", role) for role in roles[:20]]
    world.let("a")
    assert all(wait.hold for wait in waits)
    assert len(member.made(do.WriteRecord)) == 2


def test_get_role_asks_nothing_of_etcd(pair):
    before = len(pair.etcd.writes)
    pair.holders(ROLES)
    pair.run()
    assert len(pair.etcd.writes) == before


def pin(world, role="", to="", **pins):
    """Proclaim the next version by hand, with no other pins than these."""
    version = world.version
    number = version.number + 1
    pins |= {role: to} if to else {}
    after = evolve(version, number=number, pins=pins, because=("by hand",))
    world.etcd.put(f"versions/{number:016d}", encode(after))


def test_nothing_is_granted_by_a_view_from_before_the_own_write(pair):
    """Show each of two claimants its own claim, or neither both claims."""
    world = pair
    role = role_of(1, 2)
    world.hold("a", "requests")
    pin(world, role, "a")
    world.run()
    assert world.record("b").shares[0].taken == {role}
    world.hold("a", "events")
    world.hold("b", "requests")
    pin(world, role)
    world.run()
    world.hold("b", "events")
    world.let("a", "requests")
    assert world.node("a").writer.is_settled
    assert world.get("a", role) is None
    world.let("b", "requests")
    assert world.node("b").writer.is_settled
    assert world.get("b", role) is None
    world.let("a")
    world.let("b")
    assert world.holders([role]) == {role: "b"}


@pytest.mark.parametrize("reads", [False, True], ids=["", "reads"])
def test_role_regained_while_its_withdrawal_is_unanswered_is_not_granted(pair, reads):
    """Keep R1: the write may be applied later, and no read settles it."""
    world = pair
    role, a = role_of(0, 2), world.members["a"]
    assert world.get("a", role)
    world.hold("a", "requests")
    world.hold("b", "events")
    pin(world, role, "b")
    world.run()
    world.sleep(0.01)
    world.lose("a")
    assert a.node.writer.state is Write.OWED
    pin(world, role)
    a.listed = a.listed and not reads
    world.run()
    world.hold("a", "events")
    assert world.get("a", role) is None
    world.thaw()
    assert role not in world.record("a").draining
    pin(world, role, "b")
    world.let("b")
    assert world.get("b", role)
    world.let("a")
    world.sleep(1.0)
    assert world.holders([role]) == {role: "b"}


def test_retry_compares_with_the_last_answer_though_the_view_is_older(pair):
    """Keep R1: another compare would miss the write that is unanswered."""
    world = pair
    role, a = role_of(0, 2), world.members["a"]
    a.alive = False
    world.sleep(55.0)  # its deadline passes, so its record is written once more when it is renewed
    world.hold("a", "events")
    pin(world, role, "b")
    pin(world, role)
    a.alive = True
    world.sleep(0.01)
    assert a.node.writer.is_settled
    assert a.node.view.revision < a.node.writer.compare
    world.hold("a", "requests")
    assert world.carry(a, "events")
    world.lose("a")  # the write that gives the role up
    assert world.carry(a, "events")
    world.let("a", "requests")
    world.sleep(1.0)
    world.let("a")
    assert world.get("a", role)
    world.hold("a", "events")
    world.thaw()
    pin(world, role, "b")
    world.run()
    assert world.get("b", role) is None
    world.let("a")
    world.sleep(1.0)
    assert world.holders([role]) == {role: "b"}


def test_nothing_is_granted_by_a_version_not_yet_in_the_own_record(pair):
    """Claim nothing new while the write waits for handles to be released."""
    world = pair
    lost, gained = role_of(0, 2), role_of(1, 2)
    world.members["a"].lets_go = False
    hold = world.get("a", lost)
    pin(world, **{lost: "b", gained: "a"})
    world.run()
    assert gained in world.record("b").shares[0].taken
    assert hold.lost_at == world.now
    assert world.get("a", gained) is None
    world.sleep(0.01)
    assert world.record("a").draining == (lost,)
    assert world.get("a", gained)


@pytest.mark.parametrize("limit", [65_536, 1])
def test_roles_lost_to_several_versions_stay_claimed_until_released(world, limit):
    member = world.add("a", rebalance_delay=0.0, draining_limit_bytes=limit)
    member.lets_go = False
    world.holders(ROLES)
    for name in "bcd":
        world.add(name, rebalance_delay=0.0)
        world.sleep(0.1)
    assert world.ranks == list("abcd")
    assert len(world.record("a").shares) == (1 if limit > 1 else 4)
    for name in "bcd":
        for role in ROLES:
            world.want(name, role)
    assert not any(world.node(name).table.held for name in "bcd")
    world.let_go("a")
    assert world.holders(ROLES).keys() == set(ROLES)
