"""Leave with `handover_wait`: offer the rank first, and serve."""

import math

import pytest
from world import KINDS, ROLES, World, role_of

from rink.core import events as ev
from rink.core.member_record import Phase
from rink.core.state_tables import Life

WAIT_S = 20.0


def member(world, name, **settings):
    """Add a member that waits for every role, and takes whatever is its own."""
    given = {"rebalance_delay": 60.0, "handover_wait": WAIT_S, **settings}
    made = world.add(name, **given)
    for role in ROLES:
        world.want(name, role)
    return made


@pytest.fixture
def rollout(world):
    """Three settled members that offer their ranks before they leave."""
    for name in "abc":
        member(world, name, rebalance_delay=0.0)
    world.sleep(1.0)
    assert world.ranks == ["a", "b", "c"]
    return world


def test_offering_member_serves_and_keeps_its_rank(rollout):
    before = rollout.holders(ROLES)
    rollout.leave("b")
    rollout.sleep(WAIT_S - 1.0)
    assert rollout.record("b").phase is Phase.OFFERING
    assert rollout.node("b").living.state is Life.OFFERING
    assert rollout.ranks == ["a", "b", "c"]
    assert rollout.holders(ROLES) == before


def test_offering_member_hands_over_to_the_first_newcomer(rollout):
    before, b = rollout.holders(ROLES), rollout.members["b"]
    rollout.leave("b")
    rollout.sleep(8.0)
    member(rollout, "n")
    rollout.sleep(0.1)
    assert b.left
    assert rollout.ranks == ["a", "n", "c"]
    assert rollout.holders(ROLES) == {role: "n" if at == "b" else at for role, at in before.items()}


def test_offer_that_nobody_takes_ends_by_the_members_own_clock(world):
    """Its clock runs at twice the rate, so the offer lasts half as long."""
    for name, clock in (("a", (0.0, 1.0)), ("b", (-300.0, 2.0))):
        member(world, name, rebalance_delay=0.0, clock=clock)
    world.sleep(1.0)
    b = world.members["b"]
    world.leave("b")
    world.sleep(9.5)
    assert world.ranks == ["a", "b"]
    world.sleep(1.0)
    assert b.left
    assert world.ranks == ["a"]
    assert set(world.holders(ROLES).values()) == {"a"}
    assert "member 'b' is leaving; waits up to 20 s for a successor" in b.reports
    why = "none has taken over within 20 s"
    assert f"member 'b' leaves, and waits for no successor any more: {why}" in b.reports


def test_offers_of_all_members_wait_for_newcomers(rollout):
    """Nobody is active any more; each serves on."""
    before = rollout.holders(ROLES)
    for name in "abc":
        rollout.leave(name)
    rollout.sleep(15.0)
    assert rollout.holders(ROLES) == before
    for old, new in zip("abc", "nmo", strict=True):
        member(rollout, new)
        rollout.sleep(0.1)
        assert old not in rollout.members
    assert rollout.ranks == ["n", "m", "o"]


def test_ranks_of_a_group_that_ended_wait_for_its_successors(rollout):
    """End all old processes first; the new ones start one after the other."""
    before = rollout.holders(ROLES)
    for name in "abc":
        rollout.leave(name)
    rollout.sleep(WAIT_S + 1.0)
    assert not rollout.members
    for new in "nmo":
        member(rollout, new)
        rollout.sleep(6.0)
    assert rollout.ranks == ["n", "m", "o"]
    heirs = dict(zip("abc", "nmo", strict=True))
    assert rollout.holders(ROLES) == {role: heirs[at] for role, at in before.items()}


def test_ranks_that_no_successor_takes_are_given_up(rollout):
    for name in "abc":
        rollout.leave(name)
    rollout.sleep(WAIT_S + 1.0)
    member(rollout, "n")
    rollout.sleep(WAIT_S - 1.0)
    assert rollout.ranks == ["n", "b", "c"]
    rollout.sleep(1.5)
    assert rollout.ranks == ["n"]
    assert set(rollout.holders(ROLES).values()) == {"n"}


def test_leave_of_all_members_takes_twice_the_wait_at_most(world):
    """Let each successor come just before the others would give up."""
    for name in "abcd":
        member(world, name, rebalance_delay=0.0)
    world.sleep(1.0)
    old, began = [world.members[name] for name in "abcd"], world.now
    for name in "abcd":
        world.leave(name)
    world.sleep(WAIT_S - 0.3)
    for new in "nm":
        member(world, new)
        world.sleep(world.node("d").settings.leave_timeout - 0.1)
        assert world.holders(ROLES).keys() == set(ROLES)
    assert not any(one.left for one in old[2:])
    world.sleep(began + 2 * WAIT_S - world.now)
    assert all(one.left for one in old)
    assert world.ranks == ["n", "m"]


def test_killed_leaver_keeps_no_rank_from_its_successors(rollout):
    """Keep the killed leaver's record, so the group is not empty."""
    before = rollout.holders(ROLES)
    for name in "abc":
        rollout.leave(name)
    rollout.hold("b", *KINDS)
    killed = rollout.kill("b")
    rollout.sleep(WAIT_S + 1.0)
    for new in "nm":
        member(rollout, new)
        rollout.sleep(3.0)
    rollout.expire(killed)
    member(rollout, "o")
    rollout.sleep(1.0)
    assert sorted(rollout.ranks) == ["m", "n", "o"]
    held = rollout.holders(ROLES)
    assert len({(before[role], held[role]) for role in ROLES}) == 3  # each to one successor


def test_newcomer_of_a_rollout_does_not_make_the_group_grow(world):
    """Give `initial_delay` to the first members of a starting group only."""
    for name in "ab":
        member(world, name)
    world.sleep(3.0)
    assert world.ranks == ["a", "b"]
    world.leave("a")
    member(world, "n")
    member(world, "m")
    world.sleep(30.0)
    assert world.ranks == ["n", "b"]


def test_second_leave_changes_nothing_while_a_rank_is_offered(rollout):
    rollout.leave("b")
    rollout.leave("b")
    rollout.leave("b", release_within=math.inf)
    rollout.sleep(WAIT_S - 1.0)
    assert rollout.node("b").living.state is Life.OFFERING


@pytest.mark.parametrize("first", [{"now": True}, {"release_within": 3.0}])
def test_leave_in_a_hurry_offers_nothing(rollout, first):
    b = rollout.members["b"]
    rollout.leave("b", **first)
    rollout.sleep(0.1)
    assert b.left
    assert rollout.ranks == ["a", "c"]


def test_leave_now_ends_the_wait_for_a_successor_alone(rollout):
    b = rollout.members["b"]
    rollout.leave("b")
    rollout.hold("a", "requests")
    rollout.leave("b", now=True)
    assert rollout.record("b").phase is Phase.LEAVING
    assert rollout.node("b").living.state is Life.LEAVING
    rollout.leave("b", now=True)
    rollout.sleep(9.0)
    assert rollout.node("b").living.state is Life.LEAVING  # `leave_timeout` began with that
    rollout.let("a")
    assert b.left


@pytest.mark.parametrize("second", [{"keep_rank": True}, {"release_within": 1.0}])
def test_more_urgent_leave_stops_an_offer_at_once(rollout, second):
    b = rollout.members["b"]
    rollout.hold("a", *KINDS)
    rollout.leave("b")
    rollout.leave("b", **second)
    assert b.left


def test_leave_that_keeps_the_rank_offers_nothing(rollout):
    b = rollout.members["b"]
    rollout.leave("b", keep_rank=True)
    assert b.left


def test_session_lost_while_offering_ends_the_leave(rollout):
    b = rollout.members["b"]
    rollout.leave("b")
    rollout.etcd.end_lease(b.node.member_lease.id)
    rollout.run()
    assert b.left


def test_deadline_that_passes_while_offering_ends_the_wait(world):
    for name in "ab":
        member(world, name, rebalance_delay=0.0, ttl=9)
    world.sleep(1.0)
    b = world.members["b"]
    world.leave("b")
    b.alive = False
    world.hold("b", *KINDS)
    world.sleep(9.0)
    assert b.node.living.state is Life.REVOKING
    assert not b.node.table.held


def test_member_without_a_use_offers_nothing(world):
    """Nobody would serve its roles: the code that took them has ended."""
    for name in "ab":
        world.add(name, rebalance_delay=0.0, handover_wait=WAIT_S)
    world.sleep(1.0)
    b = world.members["b"]
    world.leave("b")
    assert b.left
    assert world.ranks == ["a"]
    assert not any("successor" in text for text in b.reports)


def test_offer_ends_with_the_last_use(world):
    for name in "ab":
        world.add(name, rebalance_delay=0.0, handover_wait=WAIT_S)
    world.sleep(1.0)
    b = world.members["b"]
    hold = world.get("b", role_of(1, 2))
    world.leave("b")
    world.sleep(5.0)
    assert world.node("b").living.state is Life.OFFERING
    world.release("b", hold)
    assert b.left
    assert world.ranks == ["a"]
    why = "no code here holds a role or waits for one"
    assert f"member 'b' leaves, and waits for no successor any more: {why}" in b.reports


def test_offer_ends_with_the_last_wait(world):
    for name in "ab":
        world.add(name, rebalance_delay=0.0, handover_wait=WAIT_S)
    world.sleep(1.0)
    b = world.members["b"]
    handle = world.want("b", role_of(0, 2))
    world.leave("b")
    world.sleep(5.0)
    assert world.node("b").living.state is Life.OFFERING
    assert b.node.table.release(handle)
    world.tell("b", ev.Nudged())
    assert b.left


def test_offering_member_serves_until_a_dead_successor_is_replaced(rollout):
    """The dead newcomer's record outlives it, so it gets the rank."""
    before = rollout.holders(ROLES)
    member(rollout, "n")
    killed = rollout.kill("n")
    rollout.leave("b")
    rollout.sleep(WAIT_S - 1.0)
    assert rollout.ranks == ["a", "n", "c"]
    assert rollout.holders(ROLES) == before
    member(rollout, "m")
    rollout.expire(killed)
    assert rollout.ranks == ["a", "m", "c"]
    assert rollout.holders(ROLES) == {role: "m" if at == "b" else at for role, at in before.items()}


@pytest.mark.parametrize(("second", "within_s"), [(None, WAIT_S), ({"now": True}, 6.0)])
def test_offer_ends_though_its_successor_never_claims(rollout, second, within_s):
    b = rollout.members["b"]
    member(rollout, "n")
    rollout.kill("n")
    rollout.leave("b")
    rollout.sleep(5.0)
    if second:
        rollout.leave("b", **second)
    rollout.sleep(within_s - 5.0 - 0.1)
    assert not b.left
    rollout.sleep(0.2)
    assert b.left
    late = "'n', which is new to the ranks, has not claimed its share in time"
    assert any(f"gives up roles, but {late}" in line for line in b.reports)


@pytest.mark.parametrize("steps", range(14))
def test_offer_is_taken_wherever_its_traffic_pauses(steps):
    world = World()
    for name in "ab":
        member(world, name, rebalance_delay=0.0)
    world.sleep(1.0)
    n = member(world, "n")
    for name in "abn":
        world.hold(name, *KINDS)
    world.leave("a")
    for _ in range(steps):
        any(world.carry(m, kind) for kind in KINDS for m in list(world.members.values()))
    for name in "abn":
        world.let(name)
    world.sleep(1.0)
    assert world.ranks == ["n", "b"]
    assert "a" not in world.members
    assert n.node.table.held


def test_doing_says_what_a_leave_waits_for(rollout):
    b, said = rollout.members["b"], []

    def note():
        said.append(b.node.living.doing(rollout.now))

    b.lets_go = False
    note()
    rollout.hold("a", "requests")
    rollout.leave("b", release_within=math.inf)
    rollout.sleep(12.0)
    note()
    rollout.leave("b", release_within=math.inf, now=True)
    note()
    rollout.let("a")
    note()
    rollout.leave("b", release_within=4.0)
    note()
    rollout.hold("b", "requests")
    rollout.let_go("b")
    note()
    rollout.let("b")
    note()
    assert said == [
        "",
        "leaving; waits up to 8 s for a successor",
        "leaving; waits up to 10 s for a version without it",
        "leaving; waits for its roles to be released",
        "leaving; waits up to 4 s for its roles to be released",
        "leaving; waits for etcd",
        "",
    ]
