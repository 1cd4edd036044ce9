"""Test grace (R10): unreleased roles are reported, then given up."""

import itertools

from world import RANK, role_of

from rink.core import effects as do
from rink.core.effects import Level


def lose_one(world, **settings):
    """Make `a` lose a role to `b` while its user code does not release it."""
    member = world.add("a", rebalance_delay=0.0, **settings)
    member.lets_go = False
    hold = world.get("a", role_of(1, 2))
    world.add("b", rebalance_delay=0.0)
    world.sleep(0.1)
    return member, hold


def test_without_a_grace_a_holder_keeps_its_claim_and_is_reported_once(world):
    member, hold = lose_one(world)
    world.sleep(9.0)
    assert "is still not released" not in " ".join(member.reports)
    world.sleep(300.0)
    lines = [text for text in member.reports if "is still not released" in text]
    assert len(lines) == 1
    assert "was lost 10 s ago (version 2 changed the owner)" in lines[0]
    assert world.want("b", hold.role).hold is None
    assert not hold.given_up


def test_with_a_grace_the_claim_is_given_up_when_it_is_over(world):
    member, hold = lose_one(world, grace=3.0)
    wait = world.want("b", hold.role)
    world.sleep(2.5)
    assert wait.hold is None
    world.sleep(0.5)
    assert hold.given_up
    assert wait.hold.token > hold.token
    errors = [effect for effect in member.made(do.Report) if effect.level is Level.ERROR]
    assert len(errors) == 1
    named = f"{hold.role!r} (token {hold.token})"
    guards = f"only its fencing token guards the work that still runs: {named}"
    assert errors[0].text.endswith(f"Now {guards}")


def test_roles_that_are_late_together_are_told_of_in_one_line(world):
    member = world.add("a", rebalance_delay=0.0, grace=20.0)
    member.lets_go = False
    names = (role for i in range(99) if RANK(role := f"job-{i}", "jump", 2) == 1)
    holds = [world.get("a", role) for role in itertools.islice(names, 22)]
    world.add("b", rebalance_delay=0.0)
    world.sleep(11.0)
    (late,) = [text for text in member.reports if "still not released" in text]
    assert late.startswith("22 roles were lost 10 s ago (version 2 changed the owner)")
    assert f"so nobody else can have them: {holds[0].role!r}, {holds[1].role!r}, " in late
    assert late.endswith(" and 17 more")
    world.sleep(10.0)
    assert all(hold.given_up for hold in holds)
    (error,) = [one for one in member.made(do.Report) if one.level is Level.ERROR]
    assert error.text.startswith("22 roles were lost 20.0 s ago")
    assert f"that still runs: {holds[0].role!r} (token {holds[0].token}), " in error.text
    assert error.text.endswith(" and 2 more")


def test_holder_that_is_slow_within_its_grace_is_reported_at_ten_seconds(world):
    member, hold = lose_one(world, grace=20.0)
    world.sleep(11.0)
    assert any("is still not released" in text for text in member.reports)
    world.sleep(10.0)
    assert hold.given_up


def test_role_whose_claim_was_given_up_is_granted_after_its_release(world):
    _, hold = lose_one(world, grace=3.0)
    world.sleep(4.0)
    world.expire(world.kill("b"))
    wait = world.want("a", hold.role)
    assert wait.hold is None
    world.release("a", hold)
    assert wait.hold


def test_releases_are_written_together(world):
    member = world.add("a", rebalance_delay=0.0)
    member.lets_go = False
    holds = [world.get("a", role_of(1, 2, skip)) for skip in range(10)]
    world.add("b", rebalance_delay=0.0)
    world.sleep(0.1)
    before = len(member.made(do.WriteRecord))
    for hold in holds:
        member.node.table.release(*hold.handles)
    world.step(member, [])
    world.run()
    assert len(member.made(do.WriteRecord)) == before + 1
    assert world.record("a").draining == ()
