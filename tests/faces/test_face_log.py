"""Check the log of a member's life: one line for each event."""

import logging
import threading
from types import SimpleNamespace

import pytest
from faces_support import LONG_S, engine_of, owned_by, raw, until

import rink
from rink.engine.clock import SYSTEM
from rink.engine.member_log import MemberLog
from rink.testing.memory.cluster import MemoryEtcd

ABOUT = ("group", "member", "role", "token", "version")


@pytest.fixture(autouse=True)
def told(caplog):
    """Let each test read the log, and check the `extra` of all its lines."""
    caplog.set_level(logging.DEBUG, logger="rink")
    yield caplog
    for record in caplog.get_records("call"):
        if record.name == "rink":
            assert all(hasattr(record, key) for key in ABOUT), record.getMessage()


def about(caplog, text):
    """Return what the one line with this text is about."""
    [record] = [record for record in caplog.records if text in record.getMessage()]
    return [getattr(record, key) for key in ABOUT]


def lines(caplog, name, level=logging.INFO):
    """Return the texts that one member logged at a level."""
    return [
        record.getMessage().removeprefix("group 'g': ")
        for record in caplog.records
        if record.name == "rink" and record.levelno == level and record.member == name
    ]


def wait_for(member, caplog, text):
    until(member, lambda: any(text in record.getMessage() for record in caplog.records))


def test_log_of_a_whole_life_has_one_line_for_each_event(world, told):
    a = world.join("a")
    with a.await_role("leader", LONG_S) as role:
        token = role.token
        wait_for(a, told, "granted role")
    wait_for(a, told, "released role")
    a.leave()
    found = lines(told, "a")
    assert [line.partition(" ")[0] for line in found] == [
        "joined",
        "version",
        "granted",
        "released",
        "member",
    ]
    assert found[0].startswith("joined as 'a', by etcd at memory (")
    assert found[0].endswith("with a ttl of 60 s")
    assert found[1] == "version 1: rank 0 of 1: started, joined a"
    assert found[2] == f"granted role 'leader' (token {token})"
    assert found[3].startswith(f"released role 'leader' (token {token}), after ")
    assert found[4] == "member 'a' has left"


def test_log_lines_carry_what_they_are_about(world, told):
    a = world.join("a")
    with a.await_role("leader", LONG_S) as role:
        wait_for(a, told, "granted role")
        [grant] = [one for one in told.records if "granted role" in one.getMessage()]
        [version] = [one for one in told.records if "version 1:" in one.getMessage()]
        about = [getattr(grant, key) for key in ABOUT]
        assert about == ["g", "a", "leader", role.token, 1]
        assert [getattr(version, key) for key in ABOUT] == ["g", "a", None, None, 1]


@pytest.mark.parametrize("how", ["leave", "close"])
def test_log_of_an_end_that_takes_long_carries_its_member(world, apart, told, monkeypatch, how):
    for module in ("rink.rink", "rink.aio", "rink.session"):
        monkeypatch.setattr(f"{module}.REPORT_INTERVAL_S", 0.05)
    session = world.session()
    a = world.join("a", session=session, leave_timeout=LONG_S)
    role = a.await_role("x", LONG_S)
    ending = apart(session.close if how == "close" else a.leave)
    wait_for(a, told, "is still leaving")
    role.release()
    ending.result(LONG_S)
    lines = [one for one in told.records if "is still leaving" in one.getMessage()]
    assert {tuple(getattr(one, key) for key in ABOUT) for one in lines} == {
        ("g", "a", None, None, None)
    }


def test_log_of_a_callback_that_raises_carries_its_role(world, told):
    def fails(name, is_held):
        if is_held:
            raise ValueError(name)

    a = world.join("a", on_role_change=fails)
    with a.await_role("x", LONG_S) as role:
        wait_for(a, told, "fails('x', True) raised")
        assert about(told, "fails('x', True) raised") == ["g", "a", "x", role.token, 1]


def test_log_of_a_rank_callback_that_raises_carries_its_member(world, told):
    def fails(rank):
        raise ValueError(rank)

    a = world.join("a", on_rank_change=fails)
    wait_for(a, told, "fails(0,) raised")
    assert about(told, "fails(0,) raised") == ["g", "a", None, None, None]


def test_log_of_a_function_that_raises_carries_its_role(world, told):
    a = world.join("a")
    roles = []

    @a.on_role("x")
    def fails(role):
        if not roles:
            roles.append(role)
            raise ValueError

    wait_for(a, told, "raised")
    assert about(told, "on_role('x'): ") == ["g", "a", "x", roles[0].token, 1]


def test_log_of_a_function_that_goes_on_after_the_leave_carries_it(world, told):
    a = world.join("a")
    a.on_role("x")(lambda role: None)
    [supervisor] = raw(a)._supervisors
    supervisor._log_still_running()  # after a second of waiting, which other tests take
    assert about(told, "still runs after the group") == ["g", "a", "x", None, None]


def test_log_of_a_function_whose_wait_is_refused_carries_its_role(world, told, monkeypatch):
    a = world.join("a")

    def refuses(*_):
        raise rink.UnknownScheme("no such scheme")

    monkeypatch.setattr(type(raw(a)), "await_role", refuses)
    a.on_role("x")(lambda role: None)
    wait_for(a, told, "on_role('x') ends")
    assert about(told, "on_role('x') ends") == ["g", "a", "x", None, None]


def test_log_of_an_engine_that_fails_carries_its_member(world, told):
    a = world.join("a")

    def step(*_):
        raise RuntimeError("a bug of ours")

    engine = engine_of(a)
    engine.node.step_own = step
    engine.nudge()
    assert engine.left.wait(LONG_S)
    assert about(told, "the engine of group 'g' failed") == ["g", "a", None, None, None]


def test_log_line_that_is_about_no_group_carries_nothing(world, told, monkeypatch):
    monkeypatch.setattr("rink.session._advised", set())
    monkeypatch.setattr("rink.session.advice", lambda _: "an old etcd")
    monkeypatch.setattr("rink.session.Client", MemoryEtcd)
    monkeypatch.setattr(MemoryEtcd, "version", lambda _: "3.4.0", raising=False)
    monkeypatch.setattr(MemoryEtcd, "is_of_rink_dev", lambda _: False, raising=False)
    raw(world.session())._look_at_version()
    assert about(told, "an old etcd") == [None] * 5


def test_log_of_a_loss_says_why_and_how_long_user_code_took(world, told):
    a = world.join("a")
    role = owned_by(1, 2)
    held = a.await_role(role, LONG_S)
    world.join("b")
    assert held.lost.wait(LONG_S)
    wait_for(a, told, "lost role")
    held.release()
    wait_for(a, told, "after its loss")
    assert f"lost role {role!r} (token {held.token}): version 2 changed the owner" in lines(
        told, "a"
    )


def test_log_of_many_roles_at_once_is_one_line(world, told):
    a = world.join("a")
    held = [a.await_role(name, LONG_S) for name in owned_by(1, 2, 40)]
    wait_for(a, told, "granted")
    told.clear()
    world.join("b")
    assert held[0].lost.wait(LONG_S)
    wait_for(a, told, "lost 40 roles")
    [line] = [line for line in lines(told, "a") if line.startswith("lost")]
    assert line.startswith("lost 40 roles (version 2 changed the owner): 'role-")
    assert line.endswith("and 35 more")
    for role in held:
        role.release()


def hold(role, token=7):
    """Return what the journal reads of a grant that was lost just now."""
    now = SYSTEM.now()
    return SimpleNamespace(
        role=role,
        token=token,
        version=1,
        granted_at=now,
        lost_at=now,
        lost_because="version 1 changed the owner",
        is_awaited=True,
    )


def flushed(told, *changes):
    """Write the lines of one turn, for pairs of a verb and a role."""
    journal = MemberLog("g", "a", SYSTEM, lambda: None)
    for verb, role in changes:
        getattr(journal, verb)(hold(role))
    journal.flush()
    return lines(told, "a")


def test_log_of_20_roles_in_a_turn_has_a_line_for_each(told):
    written = flushed(told, *(("lost", f"r{n}") for n in range(20)))
    assert [text.partition(" (")[0] for text in written] == [f"lost role 'r{n}'" for n in range(20)]


def test_log_of_21_roles_in_a_turn_is_one_line(told):
    [written] = flushed(told, *(("lost", f"r{n}") for n in range(21)))
    assert written.startswith("lost 21 roles (version 1 changed the owner): 'r0', ")
    assert written.endswith("and 16 more")


def test_log_of_15_roles_lost_and_released_has_30_lines_in_order(told):
    changes = [(verb, f"r{n}") for verb in ("lost", "released") for n in range(15)]
    written = flushed(told, *changes)
    assert [text.partition(" (")[0] for text in written] == [
        f"{verb} role '{role}'" for verb, role in changes
    ]


def test_log_of_many_roles_counts_each_role_once(told):
    changes = [("granted", f"r{n % 21}") for n in range(30)] + [("released", "r1")] * 2
    granted, *released = flushed(told, *changes)
    assert granted.startswith("granted 21 roles: 'r0', ")
    assert [text.partition(" (")[0] for text in released] == ["released role 'r1'"] * 2


def test_log_of_roles_that_are_only_looked_at_is_for_debugging(world, told):
    a = world.join("a")
    a.wait_ranked(LONG_S)
    with a.get_role("job"):
        pass
    wait_for(a, told, "released role 'job'")
    assert not any("'job'" in line for line in lines(told, "a"))
    assert sum("'job'" in line for line in lines(told, "a", logging.DEBUG)) == 2


def test_log_names_no_library_twice_and_no_wrong_plural(world, told):
    a, b = world.pair()
    with a.await_role(owned_by(0, 2), LONG_S), b.await_role(owned_by(1, 2), LONG_S):
        pass
    b.leave()
    a.leave()
    for record in told.records:
        assert "rink: " not in record.getMessage()
        assert "1 roles" not in record.getMessage()


def test_log_says_nothing_of_a_handle_that_shares_a_grant(world, told):
    a = world.join("a")
    first = a.await_role("x", LONG_S)
    second = a.await_role("x", LONG_S)
    waiting = threading.Thread(target=first.release, daemon=True)
    waiting.start()
    waiting.join(LONG_S)
    second.release()
    wait_for(a, told, "released role")
    engine_of(a).nudge()
    a.leave()
    assert sum("role 'x'" in line for line in lines(told, "a")) == 2
