"""Test what a new coordinator knows: delays, starts, the token base (R9)."""

from world import World

from rink.core import events as ev
from rink.core.member_record import MemberRecord, Phase
from rink.core.observed_times import ObservedTimes
from rink.core.ranks import STARTED
from rink.core.values import Member, Proclaimed, Version
from rink.core.view import View

# ── what a coordinator remembers ──────────────────────────────────────────────────────────────


def test_new_coordinator_goes_on_with_the_delays_that_have_begun():
    world = World()
    for name in "abc":
        world.add(name, rebalance_delay=0.0, leave_delay=30.0)
    world.sleep(100.0)
    world.add("d", rebalance_delay=60.0)
    world.add("e", rebalance_delay=60.0)
    world.sleep(40.0)
    world.leave("a")
    assert world.node("b").coordinates
    assert world.ranks == ["d", "b", "c"]
    world.sleep(19.0)
    assert world.ranks == ["d", "b", "c"]
    world.sleep(2.0)
    assert world.ranks == ["d", "b", "c", "e"]


def test_new_coordinator_goes_on_with_a_leave_delay_that_has_begun():
    world = World()
    for name in "abc":
        world.add(name, rebalance_delay=0.0, leave_delay=30.0)
    world.sleep(0.1)
    world.expire(world.kill("c"))
    world.sleep(20.0)
    a = world.kill("a")
    world.expire(a)
    assert world.node("b").coordinates
    assert world.ranks == ["a", "b", "c"]
    world.sleep(10.5)
    assert world.ranks == ["a", "b"]
    world.sleep(20.0)
    assert world.ranks == ["b"]


def test_member_that_joins_an_old_group_takes_it_for_no_new_one(world):
    """Ignore versions of a first list, whose times nobody here knows."""
    for name in "ab":
        world.add(name, rebalance_delay=0.0)
    world.sleep(500.0)
    world.add("c")
    assert world.node("c").view_state.observed_times.started_at is None
    world.expire(world.kill("a"))
    world.expire(world.kill("b"))
    assert world.ranks == ["c"]
    assert world.node("c").coordinates
    world.add("d")
    world.sleep(55.0)
    assert world.ranks == ["c"]
    world.sleep(6.0)
    assert world.ranks == ["c", "d"]


def test_change_of_history_does_not_make_an_old_group_new(pair):
    pair.sleep(300.0)
    b = pair.members["b"]
    assert b.node.view_state.observed_times.started_at is None
    b.listed = False
    pair.tell("b", ev.HistoryChanged("x"))
    assert b.node.view_state.observed_times.started_at is None


def test_member_that_left_by_plan_before_a_version_reserves_nothing():
    world = World()
    for name in "ab":
        world.add(name, rebalance_delay=0.0, leave_delay=30.0)
    world.sleep(0.1)
    world.hold("a", "requests")
    world.leave("b")
    world.sleep(11.0)
    assert "b" not in world.members
    world.let("a")
    assert world.ranks == ["a"]


def view_of(*entries, revision=9):
    return View.listed(revision, entries)


def bound(name, create, **record):
    return Member(name, MemberRecord("i", 60, **record), create, create, 1)


def version(number, *ranks, because=(), base=0):
    value = Version(number, ranks, "jump", token_base=base, because=because)
    return Proclaimed(number, value, number, 1)


def test_times_of_records_that_are_gone_are_forgotten():
    observed_times = ObservedTimes()
    observed_times.note(View(), 0.0)
    assert not observed_times.was_empty
    observed_times.note(view_of(bound("a", 1), version(1, "a", "b", "c")), 1.0)
    assert observed_times.first_seen == {("a", 1): 1.0}
    assert observed_times.gone_since == {"b": 1.0, "c": 1.0}
    observed_times.note(view_of(bound("b", 8), version(1, "a", "b", "c")), 2.0)
    assert observed_times.first_seen == {("b", 8): 2.0}
    assert observed_times.gone_since == {"a": 2.0, "c": 1.0}
    observed_times.note(view_of(bound("a", 9), version(2, "a")), 3.0)
    assert observed_times.gone_since == {}


def test_start_is_a_version_that_says_so_or_a_return_under_the_old_ranks():
    observed_times = ObservedTimes()
    observed_times.note(view_of(version(1, "a", because=(STARTED,))), 1.0)
    assert observed_times.started_at is None
    assert observed_times.was_empty
    observed_times.note(view_of(bound("a", 1), version(1, "a")), 2.0)
    assert observed_times.started_at == 2.0
    assert observed_times.was_empty
    observed_times.note(view_of(bound("a", 1), version(1, "a"), version(2, "a")), 3.0)
    assert not observed_times.was_empty
    assert observed_times.started_at == 2.0
    observed_times.note(view_of(bound("a", 1), version(3, "a", because=(STARTED,))), 4.0)
    assert observed_times.started_at == 4.0


def phases(at, ranks, **phase_of):
    """Return a view and its time, from phases and the ranks of version 1."""
    members = [bound(name, 1, phase=Phase(phase)) for name, phase in phase_of.items()]
    return view_of(*members, version(1, *ranks), revision=at), float(at)


def test_emptied_ranks_are_noted_while_no_ranked_member_is_active():
    observed_times = ObservedTimes()
    observed_times.note(*phases(1, "ab", a="active", b="offering"))
    assert observed_times.emptied_since == {}
    observed_times.note(*phases(2, "ab", a="leaving", b="offering"))
    assert observed_times.emptied_since == {"a": 2.0, "b": 2.0}
    observed_times.note(*phases(3, "ab", b="offering", n="active"))
    assert observed_times.emptied_since == {"a": 3.0, "b": 3.0}
    observed_times.note(*phases(4, "nb", b="offering", n="active"))
    assert observed_times.emptied_since == {"b": 3.0}
    observed_times.note(*phases(5, "nb", b="active", n="active"))
    assert observed_times.emptied_since == {}


def test_offers_are_noted_from_when_they_were_seen_first():
    observed_times = ObservedTimes()
    observed_times.note(*phases(1, "abc", a="active", b="offering", c="active"))
    observed_times.note(*phases(2, "abc", a="offering", b="offering", n="offering"))
    assert observed_times.offering_since == {"a": 2.0, "b": 1.0}
    observed_times.note(*phases(3, "abc", a="leaving", b="offering"))
    assert observed_times.offering_since == {"b": 1.0}


def test_group_whose_members_are_replaced_is_not_starting():
    observed_times = ObservedTimes()
    observed_times.note(view_of(), 0.0)
    started = version(1, "a", because=(STARTED,))
    observed_times.note(view_of(bound("a", 1), started), 1.0)
    assert observed_times.started_at == 1.0
    observed_times.note(view_of(bound("a", 1, phase=Phase.OFFERING), started), 2.0)
    assert observed_times.started_at is None


def test_token_base_is_never_forgotten():
    observed_times = ObservedTimes()
    observed_times.note(view_of(version(1, base=50)), 1.0)
    observed_times.note(view_of(version(2, base=20)), 2.0)
    observed_times.note(view_of(), 3.0)
    assert observed_times.token_base == 50
