"""Test that the next user of a role in one member has a greater token."""

import pytest

from rink.core import effects as do
from rink.core import events as ev
from rink.core.codec import encode
from rink.core.holds import Handle
from rink.core.state_tables import Life
from rink.core.values import Request, Wish


@pytest.fixture
def member(world):
    return world.add("a", rebalance_delay=0.0)


def writes_of(member):
    return len(member.made(do.WriteRecord))


def test_wait_for_greater_token_is_granted_after_one_write(world, member):
    hold = world.get("a", "x")
    writes = writes_of(member)
    later = world.want("a", "x", hold.token)
    assert later.hold is None
    world.release("a", hold)
    assert later.hold.token > hold.token
    assert writes_of(member) == writes + 1


def test_wait_for_greater_token_writes_nothing_if_view_moved_on(world, member):
    hold = world.get("a", "x")
    world.add("b", rebalance_delay=60.0)
    writes = writes_of(member)
    later = world.want("a", "x", hold.token)
    world.release("a", hold)
    assert later.hold.token > hold.token
    assert writes_of(member) == writes


def test_wait_for_greater_token_waits_until_write_is_seen(world, member):
    hold = world.get("a", "x")
    world.release("a", hold)
    world.hold("a", "events")
    later = world.want("a", "x", hold.token)
    assert later.hold is None
    assert world.get("a", "x") is None
    world.let("a", "events")
    assert later.hold.token > hold.token


def test_waits_for_greater_tokens_of_many_roles_cost_one_write(world, member):
    holds = [world.get("a", f"job-{index}") for index in range(50)]
    writes = writes_of(member)
    table = world.node("a").table
    handles = [Handle(hold.role, token_above=hold.token) for hold in holds]
    for handle, hold in zip(handles, holds, strict=True):
        table.want(handle)
        table.release(next(iter(hold.handles)))
    world.tell("a", ev.Nudged())
    assert writes_of(member) == writes + 1
    assert all(later.hold.token > hold.token for later, hold in zip(handles, holds, strict=True))


def test_wait_for_greater_token_during_a_write_is_granted_after_it(world, member):
    hold = world.get("a", "x")
    world.hold("a", "answers")
    world.release("a", hold)
    first = world.want("a", "x", hold.token)
    second = world.want("a", "y", hold.token)
    assert first.hold is second.hold is None
    world.let("a", "answers")
    assert first.hold.token > hold.token
    assert second.hold.token > hold.token


def test_wait_for_greater_token_counts_from_the_token_base(world, member):
    world.etcd.put("requests/u", encode(Request(Wish.TOKEN_BASE, token_base=1000)))
    world.run()
    hold = world.get("a", "x")
    assert hold.token > 1000
    world.release("a", hold)
    assert world.want("a", "x", hold.token).hold.token > hold.token


def test_wait_for_token_that_is_never_reached_writes_once(world, member):
    writes = writes_of(member)
    later = world.want("a", "x", 10**9)
    world.sleep(30.0)
    assert later.hold is None
    assert writes_of(member) == writes + 1
    assert world.want("a", "x").hold is not None


def test_wait_for_greater_token_outlives_the_session(world, member):
    hold = world.get("a", "x")
    later = world.want("a", "x", hold.token)
    world.etcd.end_lease(world.node("a").member_lease.id)
    world.tell("a", ev.LeaseEnded(world.node("a").member_lease.id))
    world.sleep(5.0)
    world.let_go("a")
    world.sleep(5.0)
    assert later.hold.token > hold.token


def test_offer_goes_on_while_its_role_passes_on(world):
    member = world.add("a", rebalance_delay=0.0, handover_wait=20.0)
    hold = world.get("a", "x")
    world.leave("a")
    later = world.want("a", "x", hold.token)
    world.release("a", hold)
    assert later.hold.token > hold.token
    assert member.node.living.state is Life.OFFERING
