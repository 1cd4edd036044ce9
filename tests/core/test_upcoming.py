"""Test the next change that the coordinator announces."""

import datetime as dt

import pytest
from world import KINDS

from rink.core import effects as do
from rink.inspect.member_status import status_of


class Wall:
    """A clock that shows the world's seconds."""

    def __init__(self, world):
        self.world = world

    def now(self):
        return self.world.now

    def wall(self, ahead=0.0):
        at = dt.datetime.fromtimestamp(self.world.now + ahead, dt.UTC)
        return at.isoformat()


def upcoming(world, name="a"):
    """The two fields of `status()`; the first as seconds from now."""
    status = status_of(world.node(name), "g", Wall(world))
    at = status.next_change_at
    if at is not None:
        at = dt.datetime.fromisoformat(at).timestamp() - world.now
    return at, status.next_change_because


@pytest.fixture
def pair(world):
    for name in "ab":
        world.add(name, rebalance_delay=0.0, leave_delay=30.0, initial_delay=2.0)
    world.sleep(100.0)
    assert world.ranks == ["a", "b"]
    return world


def test_in_a_quiet_group_nothing_comes_next(pair):
    assert upcoming(pair) == (None, "")


def test_member_that_waits_is_named_with_its_rebalance_delay(pair):
    pair.add("c", rebalance_delay=60.0)
    pair.add("d", rebalance_delay=30.0)
    pair.sleep(10.0)
    assert upcoming(pair) == (20.0, "member 'd' waits for its rebalance_delay of 30 s")
    assert upcoming(pair, "b") == (None, "")  # only the coordinator knows
    pair.sleep(21.0)
    assert pair.ranks == ["a", "b", "d"]
    assert upcoming(pair) == (29.0, "member 'c' waits for its rebalance_delay of 60 s")


def test_in_a_group_that_starts_newcomers_wait_for_the_initial_delay(world):
    world.add("a", initial_delay=5.0)
    world.sleep(1.0)
    world.add("b")
    world.sleep(2.0)
    assert upcoming(world) == (3.0, "member 'b' waits for the initial_delay of 5 s")


def test_rank_that_is_kept_is_named_with_the_leave_delay(pair):
    pair.expire(pair.kill("b"))
    pair.sleep(12.0)
    assert upcoming(pair) == (18.0, "the rank of 'b', which is gone, is kept: leave_delay of 30 s")
    pair.sleep(20.0)
    assert pair.ranks == ["a"]
    assert upcoming(pair) == (None, "")


def test_of_two_delays_the_one_that_ends_first_is_named(pair):
    pair.expire(pair.kill("b"))
    pair.sleep(20.0)
    assert upcoming(pair)[0] == 10.0
    assert "'b'" in upcoming(pair)[1]


def staggered(world, *names):
    for name in names:
        world.add(name, rebalance_delay=0.0, initial_delay=0.0, stagger=1)
    world.sleep(1.0)
    assert len(world.ranks) == len(names)
    return world


def test_whoever_waits_for_its_turn_is_named_with_the_stagger_and_no_time(world):
    staggered(world, "a", "b")
    world.hold("b", *KINDS)  # the next version does not settle
    world.add("c", rebalance_delay=0.0)
    world.add("d", rebalance_delay=0.0)
    world.sleep(5.0)
    assert world.ranks == ["a", "b", "c"]
    text = "member 'd' waits until the last version has settled: stagger of 1"
    assert upcoming(world) == (None, text)
    world.let("b")
    world.sleep(1.0)
    assert world.ranks == ["a", "b", "c", "d"]
    assert upcoming(world) == (None, "")


def test_turn_comes_before_a_delay_that_ends_before_settling(world):
    """The end of that delay would change nothing."""
    staggered(world, "a", "b", "c")
    world.hold("b", *KINDS)
    for name in "de":
        world.add(name, rebalance_delay=0.0)
    world.add("f", rebalance_delay=30.0)
    world.sleep(5.0)
    assert world.ranks == ["a", "b", "c", "d"]
    text = "member 'e' waits until the last version has settled: stagger of 1"
    assert upcoming(world) == (None, text)
    world.sleep(30.0)
    assert upcoming(world) == (None, text)
    world.let("b")
    world.sleep(1.0)
    assert world.ranks == ["a", "b", "c", "d", "e", "f"]


def test_delay_is_named_while_a_version_settles_without_waiting_turns(world):
    staggered(world, "a", "b")
    world.hold("b", *KINDS)
    world.add("c", rebalance_delay=0.0)
    world.add("d", rebalance_delay=30.0)
    world.sleep(5.0)
    assert world.ranks == ["a", "b", "c"]
    assert upcoming(world) == (25.0, "member 'd' waits for its rebalance_delay of 30 s")


def test_leaver_that_waits_for_its_turn_is_named_with_the_stagger(world):
    staggered(world, "a", "b", "c")
    world.hold("b", *KINDS)
    world.add("d", rebalance_delay=0.0)
    world.leave("c")
    world.sleep(0.5)
    assert world.ranks == ["a", "b", "c", "d"]
    text = "'c', which leaves, waits until the last version has settled: stagger of 1"
    assert upcoming(world) == (None, text)


def test_proclamation_that_failed_and_is_tried_again_is_no_next_change(pair):
    coordinator = pair.node("a").coordinator
    pair.add("c", rebalance_delay=60.0)
    pair.hold("a", "requests")
    pair.sleep(60.0)
    assert coordinator.proclaiming == 3
    assert upcoming(pair) == (None, "")
    while not isinstance(pair.members["a"].to_etcd[0], do.Proclaim):
        pair.carry(pair.members["a"], "requests")
    pair.lose("a")
    assert coordinator.retry_at > pair.now
    assert upcoming(pair) == (None, "")
    assert pair.node("a").wake_at == coordinator.retry_at
    pair.let("a")
    pair.sleep(1.0)
    assert pair.ranks == ["a", "b", "c"]
