"""Check a leave with unreleased handles: bounded, and the claim stays."""

import inspect
import logging
import re

import pytest
from faces_support import LONG_S, engine_of, owned_by, raw, records, refusal, until, within


def lease_of(member):
    return engine_of(member).node.member_lease.id


def errors(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]


def leases(world):
    return list(world.cluster.store._leases)


def test_leave_with_a_leaked_handle_returns(world):
    a, b = world.pair(leave_timeout=0.2)
    role = a.await_role(owned_by(0, 2), LONG_S)
    lease = lease_of(a)
    with within(LONG_S):
        a.leave()
    assert role.lost.is_set()
    assert not role.is_held
    assert records(world) == {"a", "b"}
    assert lease in leases(world)
    until(b, lambda: "a: has not released it yet" in refusal(b, role.name))
    role.release()


def test_leave_with_a_leaked_handle_lets_go_of_all_other_roles(world):
    a, b = world.pair(leave_timeout=0.2)
    leaked, other = owned_by(0, 2, 2)
    role = a.await_role(leaked, LONG_S)
    a.await_role(other, LONG_S).release()
    a.leave()
    b.await_role(other, LONG_S).release()
    (record,) = [one for one in b.members if one.name == "a"]
    assert record.draining == (leaked,)
    role.release()


def run_out(world, member):
    """Let the lease of a member that has left run out, which nobody renews."""
    lease = lease_of(member)
    assert lease not in engine_of(member)._lease_renewal._leases
    world.cluster.expire_lease(lease)


def test_role_of_a_leaked_handle_is_granted_when_the_lease_has_run_out(world):
    a, b = world.pair(leave_timeout=0.1)
    role = a.await_role(owned_by(0, 2), LONG_S)
    a.leave()
    until(b, lambda: "a: has not released it yet" in refusal(b, role.name))
    run_out(world, a)
    with b.await_role(role.name, LONG_S) as new:
        assert new.token > role.token
    until(b, lambda: len(b.members) == 1)
    role.release()


def test_error_names_a_leaked_handle_and_the_line_that_took_it(world, caplog):
    a, _ = world.pair(leave_timeout=0.1)
    name = owned_by(0, 2)
    got, line = raw(a).get_role(name), inspect.currentframe().f_lineno
    a.leave()
    (error,) = errors(caplog)
    assert f"{name!r} (token {got.token}, taken at {__file__}:{line})" in error
    assert error == "group 'g': " + raw(a).status().last_error
    got.release()


def test_leave_that_waits_goes_on_until_the_handle_is_released(world, apart):
    a, b = world.pair(leave_timeout=0.05)
    role = a.await_role(owned_by(0, 2), LONG_S)
    leaving = apart(a.leave, wait=True)
    assert role.lost.wait(LONG_S)
    until(b, lambda: "a: has not released it yet" in refusal(b, role.name))
    with pytest.raises(TimeoutError):
        leaving.result(0.5)  # ten times the leave_timeout
    role.release()
    leaving.result(LONG_S)
    until(b, lambda: records(world) == {"b"})  # the leave waits for etcd 0.05 s at most


def test_session_closed_with_a_leaked_handle_keeps_its_claim(world):
    session = world.session()
    a = world.make("a", session=session, leave_timeout=0.1).join()
    role = a.await_role("x", LONG_S)
    with within(LONG_S):
        session.close()
    assert records(world) == {"a"}
    assert len(leases(world)) == 1
    role.release()


def test_leaked_handle_of_one_group_leaves_the_sessions_other_groups_alone(world):
    session = world.session()
    one = world.join("a", group="one", session=session, leave_timeout=0.1)
    two = world.join("a", group="two", session=session)
    leaked, kept = one.await_role("x", LONG_S), two.await_role("x", LONG_S)
    one.leave()
    run_out(world, one)
    watcher = world.join("b", group="one")
    watcher.await_role("x", LONG_S).release()
    assert kept.is_held
    assert session.is_live
    # The lessor of both groups goes on renewing the lease of `two`.
    assert lease_of(two) in engine_of(two)._lease_renewal._leases
    deadline = engine_of(two).deadline
    until(two, lambda: engine_of(two).deadline > deadline)
    kept.release()
    leaked.release()


def test_rink_of_the_same_name_waits_for_the_leaked_lease(world, apart):
    a = world.join("a", leave_timeout=0.1)
    role = a.await_role("x", LONG_S)
    a.leave()
    again = world.make("a", join_timeout=LONG_S)
    joining = apart(again.join)
    until(a, lambda: engine_of(again))
    until(again, lambda: "still has its name" in again.status().last_error)
    run_out(world, a)
    joining.result(LONG_S)
    with again.await_role("x", LONG_S) as new:
        assert new.token > role.token
    role.release()


def test_leave_with_etcd_gone_and_a_leaked_handle_returns(world):
    a = world.join("a", leave_timeout=0.1)
    role = a.await_role("x", LONG_S)
    world.etcd_of(a).cut()
    with within(LONG_S):
        a.leave()
    assert role.lost.is_set()
    role.release()


@pytest.mark.parametrize("how", ["leave", "close"])
def test_end_that_waits_for_a_handle_says_so(world, apart, caplog, monkeypatch, how):
    for module in ("rink.rink", "rink.aio", "rink.session"):
        monkeypatch.setattr(f"{module}.REPORT_INTERVAL_S", 0.05)
    session = world.session()
    a = world.join("a", session=session, leave_timeout=LONG_S)
    role = a.await_role("x", LONG_S)
    ending = apart(session.close if how == "close" else a.leave)
    who, what = "group 'g': member 'a' is still leaving", "for its roles to be released: 'x'"
    until(a, lambda: re.search(rf"{who}; waits up to \d+ s {what}", caplog.text))
    role.release()
    ending.result(LONG_S)
