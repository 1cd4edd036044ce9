"""Leave with `handover_wait`: serve until a successor has the roles."""

import logging

from faces_support import LONG_S, engine_of, owned_by, raw, until, within

from rink.core.state_tables import Life


def offers(member):
    return engine_of(member).node.living.state is Life.OFFERING


def test_roles_go_on_until_a_newcomer_has_them(world, apart):
    a, b = world.pair(handover_wait=LONG_S)
    role = a.await_role(owned_by(0, 2), LONG_S)
    leaving = apart(a.leave)
    until(b, lambda: [one.phase for one in b.members] == ["offering", "active"])
    assert role.is_held
    assert a.status().leaving.endswith("s for a successor")
    assert b.status().leaving == ""
    assert b.status().members[0].leaving == "leaving; waits up to 20 s for a successor"
    c = world.join("c", handover_wait=LONG_S)
    assert role.lost.wait(LONG_S)
    role.release()
    leaving.result(LONG_S)
    with c.await_role(role.name, LONG_S) as new:
        assert new.token > role.token
    assert (c.rank, b.rank) == (0, 1)


def test_leave_now_ends_the_wait_of_a_leave(world, apart):
    a, b = world.pair(handover_wait=1000.0)
    role = a.await_role(owned_by(0, 2), LONG_S)
    leaving = apart(a.leave)
    until(b, lambda: offers(a))
    again = apart(a.leave, now=True)
    assert role.lost.wait(LONG_S)
    role.release()
    leaving.result(LONG_S)
    again.result(LONG_S)
    until(b, lambda: b.size == 1)


def test_leave_now_does_not_wait_at_all(world):
    a, _ = world.pair(handover_wait=1000.0)
    with a.await_role(owned_by(0, 2), LONG_S), within(LONG_S):
        a.leave(now=True)


def test_member_whose_code_has_ended_waits_for_no_successor(world):
    """This is the end of `with`: nobody would serve its roles meanwhile."""
    a, b = world.pair(handover_wait=1000.0)
    a.await_role(owned_by(0, 2), LONG_S).release()
    with within(LONG_S):
        a.leave()
    until(b, lambda: b.size == 1)


def test_wait_ends_with_the_last_release(world, apart):
    a, b = world.pair(handover_wait=1000.0)
    role = a.await_role(owned_by(0, 2), LONG_S)
    leaving = apart(a.leave)
    until(b, lambda: offers(a))
    role.release()
    leaving.result(LONG_S)


def test_session_that_closes_waits_for_a_successor_too(world, apart):
    session = world.session()
    a = world.join("a", session=session, handover_wait=LONG_S)
    role = a.await_role("x", LONG_S)
    closing = apart(session.close)
    until(a, lambda: offers(a))
    assert role.is_held
    b = world.join("b")
    assert role.lost.wait(LONG_S)
    role.release()
    closing.result(LONG_S)
    b.await_role("x", LONG_S).release()


def test_session_closed_within_a_time_offers_nothing(world):
    session = world.session()
    a = world.join("a", session=session, handover_wait=1000.0)
    role = a.await_role("x", LONG_S)
    with within(LONG_S):
        session.close(timeout=2.0)
    assert role.lost.is_set()
    role.release()


def test_log_says_what_a_leave_waits_for(world, apart, caplog):
    caplog.set_level(logging.INFO)
    a, b = world.pair(handover_wait=LONG_S)
    role = a.await_role(owned_by(0, 2), LONG_S)
    leaving = apart(a.leave)
    until(b, lambda: offers(a))
    text = "member 'a' is leaving; waits up to 20 s for a successor"
    until(b, lambda: any(text in one for one in caplog.messages))
    caplog.clear()
    engine_of(a).report_leaving()
    (line,) = [one for one in caplog.records if "is still" in one.getMessage()]
    assert line.levelno == logging.INFO
    assert line.getMessage().startswith("group 'g': member 'a' is still leaving; waits up to")
    raw(a)._begin_leave(now=True)
    assert role.lost.wait(LONG_S)
    engine_of(a).report_leaving()
    (line,) = [one for one in caplog.records if "to be released" in one.getMessage()]
    assert line.levelno == logging.WARNING
    assert line.getMessage().endswith(f"s for its roles to be released: {role.name!r}")
    role.release()
    leaving.result(LONG_S)
