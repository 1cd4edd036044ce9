"""Test leaves with unreleased handles, whose claims the lease ends."""

import math
import sys

import pytest
from world import KINDS, ROLES, role_of

from rink.core import effects as do
from rink.core import events as ev
from rink.core.codec import encode
from rink.core.effects import Level
from rink.core.holds import Handle, made_by
from rink.core.member_record import MemberRecord, Phase
from rink.core.state_tables import Life, Write


def clings(world, count=1):
    """Make `b` of a pair hold roles for ever, and return the holds."""
    world.members["b"].lets_go = False
    return [world.get("b", role_of(1, 2, skip)) for skip in range(count)]


def runs_out(world, kind="requests"):
    """Make `b` leave and write its last record; hold requests or answers."""
    world.hold("a", *KINDS)
    world.leave("b")
    world.sleep(15.0)
    world.hold("b", kind)
    world.sleep(5.5)
    assert world.members["b"].node.living.state is Life.RUNNING_OUT


def errors(member):
    return [one.text for one in member.made(do.Report) if one.level is Level.ERROR]


def test_leaver_that_clings_is_gone_after_leave_timeout(pair):
    b = pair.members["b"]
    clings(pair)
    pair.leave("b")
    pair.sleep(9.9)
    assert b.node.living.state is Life.LETTING_GO
    pair.sleep(0.2)
    assert b.left
    assert b.node.living.state is Life.RAN_OUT


def test_claim_of_what_clings_stays_until_the_lease_runs_out(pair):
    b, (hold,) = pair.members["b"], clings(pair)
    lease = b.node.member_lease.id
    wait = pair.want("a", hold.role)
    pair.leave("b")
    pair.sleep(20.0)
    assert b.left
    assert lease in pair.etcd.leases
    assert not b.made(do.RevokeLease)
    assert b.made(do.DropLease) == [do.DropLease(lease)]
    record = pair.record("b")
    assert (record.shares, record.draining) == ((), (hold.role,))
    assert record.phase is Phase.LEAVING
    assert wait.hold is None
    others = [role for role in ROLES if role != hold.role]
    assert pair.holders(others) == dict.fromkeys(others, "a")
    pair.expire(b)
    assert wait.hold.token > hold.token


def test_two_waits_of_a_leaver_are_bounded_apart(pair):
    """One for a version without the member, and one from when `lost` fires."""
    b, (hold,) = pair.members["b"], clings(pair)
    pair.hold("a", *KINDS)
    pair.leave("b")
    pair.sleep(9.9)
    assert hold.lost_at is None
    pair.sleep(0.2)
    assert hold.lost_at is not None
    pair.sleep(9.5)
    assert not b.left
    pair.sleep(0.5)
    assert b.left


def test_share_that_no_version_took_away_is_let_go_of_at_the_end(pair):
    """Give all but the unreleased roles away at once, not after the TTL."""
    clings(pair)
    pair.hold("a", *KINDS)
    pair.leave("b")
    pair.sleep(15.0)
    assert pair.record("b").shares  # its turn has not come: it is still ranked
    pair.sleep(10.0)
    assert pair.record("b").shares == ()
    assert pair.record("b").draining == (role_of(1, 2),)


def test_grace_that_is_shorter_gives_the_claim_up_first(world):
    for name in "ab":
        world.add(name, rebalance_delay=0.0, grace=3.0)
    world.sleep(1.0)
    b, (hold,) = world.members["b"], clings(world)
    wait = world.want("a", hold.role)
    world.leave("b")
    world.sleep(3.5)
    assert hold.given_up
    assert b.left
    assert b.made(do.RevokeLease)
    assert wait.hold


def test_leaver_that_is_to_wait_waits_for_ever(pair):
    b, (hold,) = pair.members["b"], clings(pair)
    pair.leave("b", release_within=math.inf)
    pair.sleep(10_000.0)
    assert b.node.living.state is Life.LETTING_GO
    assert b.node.wake_at is None or b.node.wake_at > pair.now
    pair.release("b", hold)
    assert b.left
    assert b.made(do.RevokeLease)


def test_leave_of_one_that_waits_for_ever_bounds_it(pair):
    b = pair.members["b"]
    clings(pair)
    pair.leave("b", release_within=math.inf)
    pair.sleep(60.0)
    pair.leave("b")
    assert not b.left
    pair.sleep(10.1)
    assert b.left


def test_leave_that_waits_for_ever_does_not_loosen_the_first(pair):
    b = pair.members["b"]
    clings(pair)
    pair.leave("b")
    pair.sleep(5.0)
    pair.leave("b", release_within=math.inf)
    pair.sleep(5.1)
    assert b.left


@pytest.mark.parametrize("kind", ["requests", "answers"])
def test_last_write_is_waited_for_one_second(pair, kind):
    b = pair.members["b"]
    clings(pair)
    runs_out(pair, kind)
    assert b.node.writer.state is Write.SENT
    pair.sleep(0.6)
    assert b.left
    assert b.node.member_lease.id in pair.etcd.leases


def test_last_handle_released_within_that_second_ends_the_lease(pair):
    b, (hold,) = pair.members["b"], clings(pair)
    runs_out(pair)
    pair.release("b", hold)
    pair.let("b")
    assert b.left
    assert b.node.member_lease.id not in pair.etcd.leases


def test_lease_lost_within_that_second_ends_the_leave(pair):
    b = pair.members["b"]
    clings(pair)
    runs_out(pair)
    pair.etcd.end_lease(b.node.member_lease.id)
    pair.tell("b", ev.LeaseEnded(b.node.member_lease.id))
    assert b.left


def test_record_that_says_so_already_is_not_written_again(pair):
    b = pair.members["b"]
    clings(pair)
    pair.leave("b")
    pair.sleep(9.0)
    writes = len(b.made(do.WriteRecord))
    assert pair.record("b").shares == ()
    pair.sleep(2.0)
    assert b.left
    assert len(b.made(do.WriteRecord)) == writes


def test_leaver_cut_off_at_the_end_writes_nothing_and_is_gone(world):
    for name in "ab":
        world.add(name, rebalance_delay=0.0, leave_timeout=70.0)
    world.sleep(1.0)
    b = world.members["b"]
    clings(world)
    world.leave("b")
    b.alive = False
    world.hold("b", *KINDS)
    world.sleep(69.0)
    assert b.node.member_lease.is_held
    assert not b.node.member_lease.is_alive
    world.sleep(1.5)
    assert b.left
    assert not b.made(do.RevokeLease)


def test_leaver_without_a_lease_is_gone_at_once_and_says_so(pair):
    b = pair.members["b"]
    clings(pair)
    pair.leave("b")
    pair.sleep(1.0)
    pair.etcd.end_lease(b.node.member_lease.id)
    pair.run()
    assert not b.left
    pair.sleep(9.5)
    assert b.left
    (error,) = errors(b)
    assert "its claim is given up, since the member leaves and has lost its session. Now" in error


def test_leaver_that_was_to_keep_its_rank_and_clings_loses_it(pair):
    """Keep no rank, since the name is taken until the lease has ended."""
    b, (hold,) = pair.members["b"], clings(pair)
    pair.leave("b", keep_rank=True)
    pair.sleep(11.0)
    assert b.left
    record = pair.record("b")
    assert (record.phase, record.shares, record.draining) == (Phase.LEAVING, (), (hold.role,))
    assert pair.ranks == ["a"]


def test_coordinator_that_keeps_its_rank_and_clings_stalls_nobody(pair):
    a = pair.members["a"]
    a.lets_go = False
    pair.get("a", role_of(0, 2))
    pair.leave("a", keep_rank=True)
    pair.sleep(11.0)
    assert a.left
    pair.add("c", rebalance_delay=0.0)
    assert pair.node("b").coordinates
    assert "c" in pair.ranks


def test_leaver_without_a_record_gives_its_claims_up(pair):
    """Give the claims up: without a record, no lease's end can end them."""
    b = pair.members["b"]
    clings(pair)
    pair.etcd.end_lease(b.node.member_lease.id)
    pair.etcd.leases.add(77)
    pair.etcd.put("members/b", encode(MemberRecord("other", 60)), 77)
    pair.run()
    pair.sleep(0.5)
    assert b.node.writer.state is Write.TAKEN
    pair.leave("b")
    pair.sleep(11.0)
    assert b.left
    assert (
        "given up, since the member leaves and has lost its session. Now only its" in errors(b)[-1]
    )


def test_overruns_are_counted_and_the_first_twenty_are_named(pair):
    b, count = pair.members["b"], 0
    b.lets_go = False
    for n in range(100):
        count += pair.get("b", f"role {n}") is not None
    pair.leave("b")
    pair.sleep(11.0)
    assert b.node.table.overruns == count
    assert errors(b)[-1].count("token ") == 20
    assert errors(b)[-1].endswith(f" and {count - 20} more")


def test_leave_with_a_bound_waits_no_longer_for_a_version(pair):
    """Half of the timeout of close() is left for the handles."""
    b, (hold,) = pair.members["b"], clings(pair)
    pair.hold("a", *KINDS)
    pair.leave("b", release_within=1.0)
    pair.sleep(1.1)
    assert hold.lost_at is not None
    assert not b.left
    pair.sleep(1.1)
    assert b.left


def test_names_that_are_too_long_leave_their_old_share_behind(world):
    for name in "ab":
        world.add(name, rebalance_delay=0.0, draining_limit_bytes=0)
    world.sleep(1.0)
    b, (hold,) = world.members["b"], clings(world)
    share = hold.share
    wait = world.want("a", hold.role)
    world.leave("b")
    world.sleep(11.0)
    assert b.left
    assert (world.record("b").shares, world.record("b").draining) == ((share,), ())
    assert wait.hold is None


def test_new_member_of_the_name_waits_for_the_lease(pair):
    b = pair.members["b"]
    clings(pair)
    pair.leave("b")
    pair.sleep(11.0)
    again = pair.add("b", rebalance_delay=0.0)
    pair.sleep(30.0)
    assert not again.joined
    pair.expire(b)
    pair.sleep(1.0)
    assert again.joined


def test_coordinator_that_clings_gives_its_rank_away_and_is_gone(pair):
    a = pair.members["a"]
    a.lets_go = False
    hold = pair.get("a", role_of(0, 2))
    wait = pair.want("b", hold.role)
    pair.leave("a")
    assert pair.ranks == ["b"]
    pair.sleep(11.0)
    assert a.left
    assert not a.node.coordinates
    assert wait.hold is None
    pair.expire(a)
    assert wait.hold.token > hold.token


def test_error_names_each_handle_and_where_it_was_made(pair):
    b, (hold,) = pair.members["b"], clings(pair)
    code = (lambda: None).__code__
    (handle,) = hold.handles
    handle.made_at = code, 0
    pair.leave("b")
    pair.sleep(11.0)
    (error,) = errors(b)
    assert error == (
        f"role {hold.role!r} was lost 10.0 s ago and is not released: the member leaves, and its "
        f"claim ends with the lease, within 60 s. Then only its fencing token guards the work that "
        f"still runs: {hold.role!r} (token {hold.token}, taken at {__file__}:{code.co_firstlineno})"
    )


@pytest.mark.parametrize(
    ("count", "places"),
    [(2, " (2 handles))"), (21, " (20 handles) and 1 more handle)"), (25, "and 5 more handles)")],
)
def test_error_counts_handles_that_were_made_at_one_place(pair, count, places):
    b, (hold,) = pair.members["b"], clings(pair)
    code = (lambda: None).__code__
    while len(hold.handles) < count:
        pair.node("b").table.take(b.node.table.gate, Handle(hold.role), pair.now)
    for handle in hold.handles:
        handle.made_at = code, 0
    pair.leave("b")
    pair.sleep(11.0)
    (error,) = errors(b)
    assert error.endswith(places)


def test_error_of_several_roles_names_them_all(pair):
    b, holds = pair.members["b"], clings(pair, count=7)
    pair.leave("b")
    pair.sleep(11.0)
    (error,) = errors(b)
    assert error.startswith("7 roles were lost 10.0 s ago and are not released: the member leaves")
    assert "Then only their fencing tokens guard the work that still runs: " in error
    for hold in holds:
        assert f"{hold.role!r} (token {hold.token})" in error


def test_place_of_a_handle_is_its_file_and_line():
    frame = sys._getframe()
    place, line = (frame.f_code, frame.f_lasti), frame.f_lineno
    assert made_by(Handle("x", None, place)) == f"{__file__}:{line}"
    assert made_by(Handle("x")) == ""
