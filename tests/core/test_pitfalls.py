"""Test pitfalls 4, 9, 10 and 11, by their rows in tests/README.md.

The 14th, clocks on the wall that are an hour apart, is in `tests/engine/test_engine_pitfalls.py`.
"""

import pytest
from world import KINDS, RANK, role_of

from rink.core import effects as do
from rink.core import events as ev

REQUESTS = (
    do.GrantLease,
    do.RevokeLease,
    do.WriteRecord,
    do.Proclaim,
    do.Prune,
    do.LookUpLease,
    do.RemoveRecord,
)


# ── 4: a lease that is judged by the wrong clock ─────────────────────────────────────────────


def cut_off(world, rate):
    """Make two members, b with a clock of that rate, and cut b off."""
    world.add("a", rebalance_delay=0.0)
    b = world.add("b", rebalance_delay=0.0, clock=(5e5, rate))
    world.sleep(100.0)
    assert world.ranks == ["a", "b"]
    hold = world.get("b", role_of(1, 2))
    world.keep_alive(b)
    world.expiries[b.node.member_lease.id] = world.now + 60.0
    b.alive = False
    world.hold("b", *KINDS)
    return b, hold


def is_held(world, member, hold):
    """Return the value of `Role.is_held`."""
    table = member.node.table
    return hold.lost_at is None and member.time_at(world.now) < table.deadline


@pytest.mark.parametrize("rate", [0.9, 0.95, 1.0, 1.1, 2.0])
def test_pitfall_4_margin_covers_a_clock_that_is_a_tenth_slow_or_fast(world, rate):
    b, hold = cut_off(world, rate)
    cut_at = world.now
    wait = world.want("a", hold.role)
    while is_held(world, b, hold):
        assert wait.hold is None
        world.sleep(0.25)
    assert world.now - cut_at == pytest.approx(54.0 / rate, abs=0.5)
    world.sleep(61.0)
    assert hold.lost_at is not None
    assert wait.hold.token > hold.token


def test_pitfall_4_clock_at_twice_the_rate_loses_nothing_without_outage(world):
    world.add("a", rebalance_delay=0.0)
    b = world.add("b", rebalance_delay=0.0, clock=(5e5, 2.0))
    world.sleep(1.0)
    hold = world.get("b", role_of(1, 2))
    number = world.version.number
    world.sleep(1000.0)
    assert is_held(world, b, hold)
    assert world.version.number == number


def test_pitfall_4_beyond_the_margin_only_the_token_is_left(world):
    """Show that the margin does not cover a clock that is a fifth slow.

    An hour is 48 minutes to that clock.
    """
    b, hold = cut_off(world, 0.8)
    wait = world.want("a", hold.role)
    world.sleep(61.0)
    assert is_held(world, b, hold)
    assert wait.hold.token > hold.token


# ── 9: one slow role blocks the losses of others ─────────────────────────────────────────────


def test_pitfall_9_of_1000_roles_10_are_stuck_and_the_others_move_at_once(world):
    roles = [f"job-{index}" for index in range(1000)]
    a = world.add("a", rebalance_delay=0.0)
    a.lets_go = False
    holds = {role: world.get("a", role) for role in roles}
    world.add("b", rebalance_delay=0.0)
    moved = [role for role in roles if RANK(role, "jump", 2) == 1]
    waits = {role: world.want("b", role) for role in moved}
    stuck = moved[:10]
    world.sleep(0.01)
    assert {holds[role].lost_at for role in moved} == {holds[stuck[0]].lost_at}
    assert len(a.lost) == len(moved) > 400
    for role in moved[10:]:
        a.node.table.release(*holds[role].handles)
    world.tell("a", ev.Nudged())
    world.sleep(0.01)
    assert all(waits[role].hold for role in moved[10:])
    assert not any(waits[role].hold for role in stuck)
    assert len(a.made(do.WriteRecord)) <= 5
    world.let_go("a")
    assert all(waits[role].hold for role in stuck)


# ── 10: a thundering herd ────────────────────────────────────────────────────────────────────


def requests(world):
    return sum(isinstance(one, REQUESTS) for member in world.everyone for one in member.effects)


def group(world, size):
    """Make a settled group in which each member awaits 100 foreign roles."""
    names = [f"m{index:02}" for index in range(size)]
    for name in names:
        world.add(name, rebalance_delay=0.0, leave_delay=20.0)
    world.sleep(1.0)
    roles = [f"job-{index}" for index in range(100)]
    world.holders(roles)
    for name in names:
        for role in roles:
            world.want(name, role)
    assert len(world.ranks) == size
    return names


@pytest.mark.parametrize("size", [3, 12])
def test_pitfall_10_crash_with_a_standby_costs_the_same_in_any_group(world, size):
    names = group(world, size)
    world.add("stand-by", rebalance_delay=60.0)
    world.sleep(1.0)
    before = requests(world)
    world.expire(world.kill(names[1]))
    world.sleep(1.0)
    assert "stand-by" in world.ranks
    assert requests(world) - before == 2  # the version, and the stand-by's record


@pytest.mark.parametrize("size", [3, 12])
def test_pitfall_10_a_quick_restart_costs_nobody_else_a_request(world, size):
    names = group(world, size)
    others = [world.members[name] for name in names if name != names[1]]
    before = [len(member.effects) for member in others]
    world.expire(world.kill(names[1]))
    world.add(names[1], rebalance_delay=0.0, leave_delay=20.0)
    world.sleep(1.0)
    made = [e for m, n in zip(others, before, strict=True) for e in m.effects[n:]]
    assert not [effect for effect in made if isinstance(effect, REQUESTS)]


@pytest.mark.parametrize("size", [3, 12])
def test_pitfall_10_growth_and_shrinking_cost_one_write_of_each_member(world, size):
    names = group(world, size)
    before = requests(world)
    world.add("new", rebalance_delay=0.0)
    world.sleep(1.0)
    assert len(world.ranks) == size + 1
    assert requests(world) - before <= size + 1 + 4  # lease, record, version; and one to spare
    before = requests(world)
    world.leave("new")
    world.sleep(1.0)
    assert world.ranks == names
    assert requests(world) - before <= size + 4


# ── 11: rebalance storms ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("named", [True, False], ids=["same name", "new names"])
def test_pitfall_11_a_crash_looping_newcomer_moves_nothing(pair, named):
    world = pair
    holds = [world.get(name, role_of(rank, 2)) for rank, name in enumerate("ab")]
    number = world.version.number
    for round_ in range(50):
        name = "loops" if named else f"loops-{round_}"
        world.add(name, rebalance_delay=60.0)
        world.sleep(20.0)
        world.expire(world.kill(name))
        world.sleep(5.0)
    assert world.version.number == number
    assert all(hold.lost_at is None for hold in holds)


def test_pitfall_11_member_in_a_crash_loop_costs_one_version(pair):
    world = pair
    hold = world.get("a", role_of(0, 2))
    number = world.version.number
    for _ in range(50):
        world.expire(world.kill("b"))
        world.sleep(5.0)
        world.add("b", rebalance_delay=60.0)
        world.sleep(20.0)
    assert world.version.number == number + 1
    assert hold.lost_at is None


def test_pitfall_11_within_the_leave_delay_it_costs_none(world):
    for name in "ab":
        world.add(name, rebalance_delay=0.0, leave_delay=30.0)
    world.sleep(1.0)
    hold, number = world.get("a", role_of(0, 2)), world.version.number
    for _ in range(50):
        world.expire(world.kill("b"))
        world.sleep(5.0)
        world.add("b", rebalance_delay=0.0, leave_delay=30.0)
        world.sleep(20.0)
    assert world.version.number == number
    assert hold.lost_at is None
