"""Test members that are frozen, or have a wrong wall clock.

Others are in a crash loop, or share one name.
"""

import concurrent.futures
import random
import time
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from faults_members_clock import preload
from faults_members_group import Group
from faults_members_support import Members, until
from members import HEADROOM_S, LONG_S
from table import Row

import rink
from rink.core.handover import CLAIM_TIMEOUT_S
from rink.core.schemes import rank_of
from rink.engine.clock import SYSTEM
from rink.etcd.proto import rinketcd_pb2 as pb
from rink.testing import local_etcd

pytestmark = pytest.mark.waits

pytest_plugins = ["faults_members_fixtures"]

TTL_S = 3
TAKEN_OVER_S = TTL_S + 1.5
SERVERS = "1 node"


def version_of(member):
    return member.ask("status")["version"]


# ── frozen ───────────────────────────────────────────────────────────────────────────────────


def test_holder_frozen_past_its_ttl_knows_it_at_once_when_it_thaws(group_of, record):
    """A holder that thaws after its TTL knows its loss at once.

    Its next fenced write is refused, even if it looked at nothing before it.
    """
    roles = [f"role-{number}" for number in range(20)]
    group = group_of(roles, TTL_S)
    frozen = group.joined("frozen")
    group.settle()
    heir = group.joined("heir", rebalance_delay=60.0)
    assert len(frozen.ask("take", roles)["taken"]) == 20
    assert sorted(frozen.ask("write")["accepted"]) == sorted(roles)
    frozen_at = frozen.freeze()
    taken_at = group.wait_for_holders(heir)
    until(lambda: group.history.judge().accepted == 3 * 20)  # the heir has written as well
    for command in ("held", "write"):
        frozen.say(command)  # they lie in its socket: the first things that it does
    frozen.say("lost", 5.0)
    thawed_at = frozen.thaw()
    assert frozen.wait("held")["held"] == []
    assert frozen.wait("write")["accepted"] == []
    lost = frozen.wait("lost")
    assert sorted(lost["lost"]) == sorted(roles)
    assert lost["at"] - thawed_at < 3.0
    assert taken_at - frozen_at < TAKEN_OVER_S + HEADROOM_S
    frozen.ask("release")
    group.settle()  # it has joined anew, and shares the roles with the heir
    judgement = group.history.judge()
    assert judgement.problems == []
    assert judgement.refused == 20
    record(
        Row.of(
            "member frozen past its TTL, and thawed",
            SERVERS,
            judgement,
            frozen_at,
            bound=TAKEN_OVER_S + HEADROOM_S,
        )
    )


@pytest.mark.parametrize("frozen_s", [0.6, 2.0])
def test_newcomer_frozen_before_its_claim_leaves_the_roles_held(group_of, record, frozen_s):
    """A frozen newcomer is waited for until it claims, at most 1 s.

    Meanwhile the roles stay held. A newcomer that thaws within that second takes over as usual.

    The coordinator is a third member: neither the frozen newcomer nor the leaving member proclaims.
    The best of three attempts must keep the limit, since the machine may be busy.
    """
    for _ in range(3):
        row = _newcomer_is_frozen(group_of, frozen_s)
        expected_s = max(0.0, frozen_s - CLAIM_TIMEOUT_S)
        if expected_s - 0.4 < row.longest_gap < row.bound:
            break
    record(row)
    assert expected_s - 0.4 < row.longest_gap < row.bound


def _newcomer_is_frozen(group_of, frozen_s):
    """Make a holder leave while its successor is frozen; return the row."""
    group = group_of([f"role-{number}" for number in range(20)], TTL_S)
    coordinator = group.joined("coordinator")
    holder = group.joined("holder")
    group.settle()
    heir = group.joined("heir", rebalance_delay=60.0)
    holder.until_it_sees(heir)
    frozen_at = heir.freeze()
    holder.ask("begin_to_leave")
    time.sleep(frozen_s)
    heir.thaw()
    group.alive.remove(holder)
    group.wait_for_holders(coordinator, heir)
    until(lambda: not holder.holding)  # each member reports through its own pipe
    judgement = group.history.judge()
    assert judgement.problems == []
    assert judgement.refused == 0
    group.close()
    return Row.of(
        f"newcomer frozen for {frozen_s} s before its claim, holder leaves",
        SERVERS,
        judgement,
        frozen_at,
        bound=max(0.0, frozen_s - CLAIM_TIMEOUT_S) + 0.4,
    )


# ── a wrong wall clock ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def wrong(tmp_path):
    """Fork members whose wall clock can be set wrong."""
    members = Members(preload(tmp_path))
    yield members
    members.close()
    members.check()


def test_wall_clock_an_hour_off_changes_no_delay_and_no_hand_over(group_of, wrong, record):
    """A wall clock that is an hour off changes no delay and no hand-over.

    The coordinator measures all delays, and its wall clock jumps while it runs.
    """
    hours = {"ahead": 3600, "behind": -3600}
    groups = {which: group_of([f"{which}/{n}" for n in range(12)], TTL_S) for which in hours}
    with concurrent.futures.ThreadPoolExecutor(len(hours)) as pool:
        runs = [pool.submit(_live_by, groups[one], wrong, hours[one]) for one in hours]
        began_at = [run.result() for run in runs]
    for (which, group), at in zip(groups.items(), began_at, strict=True):
        judgement = group.history.judge()
        assert judgement.problems == []
        assert judgement.refused == 0
        then = "behind" if hours[which] > 0 else "ahead"
        row = Row.of(
            f"coordinator's wall clock an hour {which}, then {then}",
            SERVERS,
            judgement,
            at,
            versions=version_of(group.alive[0]) - 1,
            bound=TAKEN_OVER_S + 1.0 + HEADROOM_S,
        )
        record(row)
        assert row.longest_gap < row.bound


def _live_by(group: Group, wrong: Members, seconds: int) -> float:
    """Run a group through its life; return when the first change began.

    The changes are growth, a planned leave, a jump of the clock and two crashes.
    """
    coordinator = group.joined("wrong", by=wrong, shift=seconds, leave_delay=1.0)
    group.settle()
    said = coordinator.ask("shift", seconds)
    off = datetime.fromisoformat(said["wall"]) - datetime.now(UTC)
    assert abs(off - timedelta(seconds=seconds)) < timedelta(minutes=1)
    print("FIGURE wall clock set", said["how"], "to", said["wall"])
    began_at = SYSTEM.now()

    second = group.joined("second", rebalance_delay=1.0)
    group.settle()
    first = next(one for one in group.history.judge().grants if one.who == second.who)
    assert 1.0 <= first.at - began_at < LONG_S  # and not an hour more

    third = group.joined("third", rebalance_delay=60.0)
    second.until_it_sees(third)
    left_at = SYSTEM.now()
    group.leave(second)
    group.settle()
    assert group.history.judge().longest_gap(left_at) < TTL_S  # milliseconds on a quiet machine

    number, jumped_at = version_of(coordinator), SYSTEM.now()
    coordinator.ask("shift", -seconds)
    time.sleep(TTL_S + 0.5)
    assert group.history.judge().gains(jumped_at) == {}
    assert version_of(coordinator) == number

    killed_at = group.kill(third)
    took = group.wait_for_holders(coordinator) - killed_at
    # No member waits, so its leave_delay counts.
    assert TTL_S * 5 / 6 - 0.1 + 1.0 <= took < TAKEN_OVER_S + 1.0 + HEADROOM_S

    fourth = group.joined("fourth", rebalance_delay=60.0)
    killed_at = group.kill(coordinator)
    took = group.wait_for_holders(fourth) - killed_at
    assert took < TAKEN_OVER_S + HEADROOM_S
    return began_at


# ── a crash loop ─────────────────────────────────────────────────────────────────────────────


def leases_of(node):
    """Return how many leases an etcd has."""
    with grpc.insecure_channel(node.endpoint.partition("://")[2]) as channel:
        ask = channel.unary_unary("/etcdserverpb.Lease/LeaseLeases")
        # As in the answer to a range, field 2 has the keys; the other fields do not matter.
        return len(pb.RangeResponse.FromString(ask(b"", timeout=LONG_S)).kvs)


def test_crash_looping_member_moves_nobody_elses_roles(group_of, record):
    """A crash-looping member moves no roles of the others.

    The newcomer comes under old and new names. A member that had a rank moves once.
    """
    roles = [f"role-{number}" for number in range(40)]
    ttl, loops = 2, 14
    newcomer = [f"new-{turn}" if turn % 2 else "new" for turn in range(loops)]
    with local_etcd(fsync=False) as node, concurrent.futures.ThreadPoolExecutor(2) as pool:
        cases = [
            ("a newcomer in a crash loop", newcomer, 2, 0),
            ("a ranked member in a crash loop", ["last"] * (loops // 2), 3, 1),
        ]
        groups = [group_of(roles, ttl, node.endpoint) for _ in cases]
        runs = [pool.submit(_loop, *one) for one in zip(groups, cases, strict=True)]
        most = 0
        while not all(run.done() for run in runs):
            most = max(most, leases_of(node))
            time.sleep(0.1)
        for run, (fault, names, _, _) in zip(runs, cases, strict=True):
            row, seconds = run.result()
            print("FIGURE", fault, len(names), "kills in", round(seconds, 1), "s")
            record(row)
        until(lambda: leases_of(node) == 4)
        print("FIGURE leases: at most", most, "in the end", leases_of(node))
        assert most <= 4 + 1 + len(newcomer)
        for group in groups:
            assert sorted(group.alive[0].ask("status")["members"]) == ["first", "second"]
            group.close()


def _loop(group, case):
    """Start a member and kill it at any moment of its life.

    The rebalance delay is longer than its life.
    """
    fault, names, size, versions = case
    rng = random.Random(fault)
    for name in ("first", "second"):
        group.joined(name, ttl=10)  # only the lease of the crashing member is short
    if size == 3:
        group.joined("last")
    group.settle()
    first = group.alive[0]
    its = {role for role in group.roles if size == 3 and rank_of(role, size) == 2}
    number, began_at = version_of(first), SYSTEM.now()
    if size == 3:
        group.kill(group.alive[2])
    for name in names:
        looper = group.start(name, rebalance_delay=60.0)
        if rng.random() < 0.5:
            looper.wait("joined", timeout=group.ttl + 1.5 + HEADROOM_S)
            time.sleep(rng.uniform(0.0, 0.2))
        else:
            time.sleep(rng.uniform(0.0, 0.5))
        group.kill(looper)
    seconds = SYSTEM.now() - began_at
    group.wait_for_holders()
    judgement = group.history.judge()
    assert judgement.problems == []
    assert judgement.gains(began_at).keys() <= its
    bound = group.ttl + 1.5 + HEADROOM_S
    proclaimed = version_of(first) - number
    row = Row.of(fault, SERVERS, judgement, began_at, versions=proclaimed, bound=bound)
    assert proclaimed <= versions
    assert row.longest_gap < bound
    return row, seconds


# ── two under one name ───────────────────────────────────────────────────────────────────────


def test_two_live_processes_of_one_name_do_not_both_join(group_of, record):
    roles = [f"role-{number}" for number in range(20)]
    group = group_of(roles, TTL_S)
    first = group.joined("same")
    group.settle()
    began_at = SYSTEM.now()
    second = group.start("same", join_timeout=2.0)
    failed = second.wait("failed")
    assert failed["error"] == "MemberNameTaken"
    assert issubclass(rink.MemberNameTaken, rink.JoinError)
    assert 2.0 <= failed["at"] - began_at < 2.0 + 5.0  # and not the 10 s of the default
    assert any("'same' waits to join" in text for _, text in second.logged), second.logged
    third = group.start("same", join_timeout=LONG_S)
    until(lambda: any("waits to join" in text for _, text in third.logged))
    assert group.history.judge().gains(began_at) == {}
    killed_at = first.kill()  # the pod that crashed and came back
    joined = third.wait("joined")
    held_at = group.wait_for_holders(third)
    assert joined["at"] - killed_at < TAKEN_OVER_S + HEADROOM_S
    assert held_at - killed_at < TAKEN_OVER_S + HEADROOM_S
    judgement = group.history.judge()
    assert judgement.problems == []
    bound = TAKEN_OVER_S + HEADROOM_S
    record(Row.of("two live processes of one name", SERVERS, judgement, began_at, bound=bound))
