"""When the group grows for a member that waits: its own bound, in words."""

from rink.core.codec import encode
from rink.core.member_record import MemberRecord
from rink.core.why_not_held import why_not_ranked


def told(world, name):
    node = world.node(name)
    member = world.members[name]
    return why_not_ranked(
        node.view, node.view_state.observed_times, name, member.time_at(world.now)
    )


def test_waiting_member_is_told_its_own_rebalance_delay(pair):
    pair.sleep(200.0)  # long after the start
    pair.add("c", rebalance_delay=60.0)
    pair.sleep(5.0)
    assert told(pair, "c") == (
        "not ranked yet: the group grows for this member in about 55 s (rebalance_delay=60), "
        "or at once if another member leaves"
    )
    assert pair.node("c").table.gate.closed_because == "not ranked yet"


def test_member_that_saw_the_group_start_is_told_the_initial_delay(world):
    world.add("a", initial_delay=20.0)
    world.add("b", rebalance_delay=60.0, initial_delay=1.0)
    for observed_times in (world.node("b").view_state.observed_times, world.node("b")._shadow):
        observed_times.started_at = world.now
    world.sleep(5.0)
    assert "in about 15 s (initial_delay=20), or at once" in told(world, "b")


def test_member_that_came_after_a_start_is_told_that_it_may_be_sooner(world):
    world.add("a", initial_delay=20.0)
    world.add("b", rebalance_delay=60.0)
    assert told(world, "b").endswith("; sooner if the group has only just started")


def test_member_whose_delay_is_over_is_told_who_ranks_it(world):
    world.add("a", stagger=1, rebalance_delay=0.0)
    world.sleep(200.0)
    world.hold("a", "events", "requests")
    world.add("b", rebalance_delay=0.0)
    world.sleep(1.0)
    assert told(world, "b") == (
        "not ranked yet: rebalance_delay=0 is over, so 'a' ranks this member once the group is "
        "settled (stagger: 1 at a time)"
    )


def test_member_without_a_record_in_its_view_is_told_that_it_is_not_ranked(pair):
    node = pair.node("a")
    pair.etcd.put("members/by-hand", encode(MemberRecord("i", 60)))
    pair.run()
    for name in ("nobody", "by-hand"):
        assert (
            why_not_ranked(node.view, node.view_state.observed_times, name, 0.0) == "not ranked yet"
        )


def test_waiting_member_without_an_obstacle_says_no_grant_came_yet(pair):
    """A scheme that hangs keeps the engine from granting, for any time."""
    node = pair.node("a")
    role = next(f"r{i}" for i in range(9) if node.placement.rank(f"r{i}", "jump", 2) == 0)
    obstacles = node.hold_obstacles((), pair.now)
    text = obstacles.obstacle(role, node.placement)
    assert text == "nothing is in the way; it has not been granted yet"
