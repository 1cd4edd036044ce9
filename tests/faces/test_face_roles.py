"""Check awaiting, sharing, losing and releasing roles, on both faces."""

import contextlib
import gc
import logging
import re
import warnings

import pytest
from faces_support import LONG_S, engine_of, owned_by, raw, refusal, until, within

import rink
from rink import roles as roles_module


def test_awaited_role_is_held_with_a_token(world):
    member = world.join("a")
    with member.await_role("leader", LONG_S) as role:
        assert role.is_held
        assert not role.lost.is_set()
        assert (role.name, role.rank, role.version_number) == ("leader", 0, member.version.number)
        assert 0 < role.token <= member.status().revision
        role.raise_if_lost()
    assert not role.is_held
    with pytest.raises(rink.RoleLost, match="released here") as caught:
        role.raise_if_lost()
    error = caught.value
    assert (error.role, error.group, error.member) == ("leader", "g", member.name)
    assert error.token == role.token


def test_role_is_got_where_it_is_mine_and_else_none(world):
    a, b = world.pair()
    for rank, (mine, other) in enumerate([(a, b), (b, a)]):
        name = owned_by(rank, 2)
        assert other.get_role(name) is None
        with mine.get_role(name) as role:
            assert role.is_held


def test_getting_a_role_asks_etcd_nothing(world):
    member = world.join("a")
    assert member.wait_settled(LONG_S)
    revision = world.cluster.store.revision
    world.etcd_of(member).cut()
    for index in range(100):
        member.get_role(f"job-{index}").release()
    assert world.cluster.store.revision == revision


def test_wait_that_times_out_names_who_is_in_the_way(world):
    a, _ = world.pair()
    with within(10.0), pytest.raises(rink.RoleTimeout, match="b: owns it in version") as caught:
        a.await_role(owned_by(1, 2), 0.05)
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, rink.RinkError)
    error = caught.value
    assert (error.role, error.group, error.member) == (owned_by(1, 2), "g", "a")


def test_wait_of_member_that_cannot_follow_says_so_not_yet(world):
    mine = rink.register_scheme(lambda _, __: 0, "faces-tests", 1)
    world.join("a", scheme=mine)
    stranger = world.make("b").join()
    words = f"it cannot follow the group's scheme {mine!r}: register that in its process"
    until(stranger, lambda: stranger.version)
    with pytest.raises(rink.RoleTimeout) as caught:
        stranger.await_role("x", 0.05)
    assert f"version 1 does not rank this member: {words}" in str(caught.value)
    status = stranger.status()
    assert words in status.last_error
    assert words in status.members[1].no_rank_because
    assert status.members[0].no_rank_because == ""


def test_member_that_prefers_another_built_in_scheme_is_ranked(world):
    """The message said "yet", though only a restart could give it a rank."""
    a, b = world.join("a", scheme="balanced:4"), world.join("b", scheme="balanced:8")
    assert a.wait_settled(LONG_S)
    assert (b.version.scheme, b.rank) == ("balanced:4", 1)
    a.leave()
    until(b, lambda: b.version.scheme == "balanced:8")
    b.await_role("p/1", LONG_S).release()


def test_wait_behind_a_holder_that_does_not_let_go_names_it(world):
    a = world.join("a")
    role = a.await_role(owned_by(1, 2), LONG_S)
    b = world.join("b")
    assert role.lost.wait(LONG_S)
    until(b, lambda: "a: has not released it yet" in refusal(b, role.name))
    role.release()
    with b.await_role(role.name, LONG_S):
        pass


def test_timeout_of_zero_asks_once(world):
    a, _ = world.pair()
    with a.await_role(owned_by(0, 2), 0):
        pass
    with pytest.raises(rink.RoleTimeout):
        a.await_role(owned_by(1, 2), 0)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon", True])
def test_timeout_that_is_none_is_refused(world, timeout):
    member = world.join("a")
    with pytest.raises(rink.ConfigError, match="timeout"):
        member.await_role("x", timeout)


def test_very_long_timeout_is_as_good_as_none(world, apart):
    a, b = world.pair()
    waiting = apart(a.await_role, owned_by(1, 2), 1e12)
    until(a, lambda: a.status().waiting_for)
    b.leave()
    waiting.result(LONG_S).release()


def test_wait_that_timed_out_is_withdrawn(world):
    a, b = world.pair()
    name = owned_by(1, 2)
    with pytest.raises(rink.RoleTimeout):
        a.await_role(name, 0.01)
    assert a.status().waiting_for == {}
    b.leave()
    until(a, lambda: a.size == 1 and a.can_take(name))
    assert a.status().held == {}


def test_grant_that_races_with_a_withdrawal_is_let_go(world, apart):
    a, b = world.pair()
    names = owned_by(1, 2, 20)
    waits = [apart(_try, a, name, 0.02 + 0.002 * i) for i, name in enumerate(names)]
    apart(b.leave)
    for wait in waits:
        wait.result(LONG_S)
    assert (a.status().held, a.status().waiting_for) == ({}, {})


def _try(member, name, timeout):
    with contextlib.suppress(rink.RoleTimeout):
        member.await_role(name, timeout).release()


def test_handles_of_one_role_share_it_until_the_last_is_released(world):
    member = world.join("a")
    one, two = member.await_role("x", LONG_S), member.get_role("x")
    three = member.await_role("x", LONG_S)
    assert one.token == two.token == three.token
    one.release()
    one.release()
    two.release()
    assert not one.is_held
    assert three.is_held
    assert list(member.status().held) == ["x"]
    three.release()
    assert member.status().held == {}


def test_later_member_has_a_greater_token(world):
    a, b = world.pair()
    name = owned_by(1, 2)
    tokens = []
    with b.await_role(name, LONG_S) as role:
        tokens.append(role.token)
    b.leave()
    with a.await_role(name, LONG_S) as role:
        tokens.append(role.token)
    c = world.join("c")
    with c.await_role(name, LONG_S) as role:
        tokens.append(role.token)
    assert tokens == sorted(set(tokens))


def test_role_is_lost_when_the_group_grows(world):
    a = world.join("a")
    stays, goes = a.await_role(owned_by(0, 2), LONG_S), a.await_role(owned_by(1, 2), LONG_S)
    b = world.join("b")
    assert goes.lost.wait(LONG_S)
    assert goes.lost.is_set()
    assert not goes.is_held
    with pytest.raises(rink.RoleLost, match="changed the owner"):
        goes.raise_if_lost()
    assert a.status().draining == (goes.name,)
    goes.release()
    with b.await_role(goes.name, LONG_S) as gained:
        assert gained.token > goes.token
    assert stays.is_held
    assert not stays.lost.is_set()
    stays.release()


def test_role_is_lost_when_its_member_leaves(world, apart):
    a, b = world.pair()
    role = b.await_role(owned_by(1, 2), LONG_S)
    leaving = apart(b.leave)
    assert role.lost.wait(LONG_S)
    waiting = apart(a.await_role, role.name, LONG_S)
    until(a, lambda: a.status().waiting_for)
    assert not leaving.done()
    assert not waiting.done()
    role.release()
    leaving.result(LONG_S)
    waiting.result(LONG_S).release()


def test_wait_for_a_greater_token_gets_it_once_the_role_is_released(world, apart):
    member = world.join("a")
    with member.await_role("leader", LONG_S) as first:

        def says(above):
            with pytest.raises(rink.RoleTimeout) as caught:
                member.await_role("leader", 0.05, token_above=above)
            return str(caught.value)

        why = f"holds it with token {first.token}, but the call needs"
        until(member, lambda: why in says(first.token))  # its record may not be written yet
        later = apart(lambda: member.await_role("leader", LONG_S, token_above=first.token))
        until(member, lambda: "leader" in member.status().waiting_for)
    with later.result(LONG_S) as second:
        assert second.token > first.token
    never = 2**60
    until(member, lambda: re.search(f"the next grant comes with token .*{never}", says(never)))


def test_lost_role_stays_lost_and_is_granted_anew_only_after_its_release(world, apart):
    a = world.join("a")
    old = a.await_role(owned_by(1, 2), LONG_S)
    b = world.join("b")
    assert old.lost.wait(LONG_S)
    until(b, lambda: any(m.draining for m in b.members))
    leaving = apart(b.leave)
    until(a, lambda: a.size == 1)
    leaving.result(LONG_S)
    assert not old.is_held
    assert old.lost.is_set()
    assert a.get_role(old.name) is None
    assert not a.can_take(old.name)
    # At first it may be its own write that is in the way: it has just heard that it is alone.
    until(a, lambda: "is not released here yet" in refusal(a, old.name))
    old.release()
    with a.await_role(old.name, LONG_S) as new:
        assert new.token > old.token
        assert not old.is_held


def test_wait_for_the_loss_ends_with_its_timeout(world):
    member = world.join("a")
    with member.await_role("x", LONG_S) as role:
        assert role.lost.wait(0.01) is False
        assert role.lost.wait(0) is False


def test_is_held_looks_at_the_deadline_itself(world):
    member = world.join("a")
    with member.await_role("x", LONG_S) as role:
        engine = engine_of(member)
        # The answer to the first keepalive would move the deadline; the second is sent in 10 s.
        until(member, lambda: engine.node.renewals.call is not None)
        with engine.lock:  # as if no keepalive had been answered, and no thread had noticed
            deadline, engine.table.deadline = engine.table.deadline, engine.clock.now()
        assert not role.is_held
        assert member.get_role("x") is None
        assert not member.can_take("x")
        with pytest.raises(rink.RoleLost, match="deadline"):
            role.raise_if_lost()
        with engine.lock:
            engine.table.deadline = deadline
        assert role.is_held


def test_dropped_handle_is_released_with_one_warning(world, monkeypatch):
    monkeypatch.setattr(roles_module._ReleaseWarning, "once", False)
    a = world.join("a")
    assert a.wait_settled(LONG_S)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for index in range(3):
            assert a.get_role(f"x{index}").is_held
        gc.collect()
        until(a, lambda: not a.status().held)
    assert [w.category for w in caught] == [ResourceWarning]
    assert "can_take(name)" in str(caught[0].message)


def test_dropped_handle_of_a_lost_role_lets_the_next_member_have_it(world, monkeypatch):
    monkeypatch.setattr(roles_module._ReleaseWarning, "once", True)
    a = world.join("a")
    role = a.await_role(owned_by(1, 2), LONG_S)
    name = role.name
    b = world.join("b")
    assert role.lost.wait(LONG_S)
    del role
    gc.collect()
    with b.await_role(name, LONG_S):
        pass


def test_roles_whose_names_begin_alike_do_not_wait_for_each_other(world):
    a = world.join("a")
    names = ("BTC", "BTC/ETH", "BTC/ETH/")
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(a.await_role(name, LONG_S))
        assert len(a.status().held) == 3


@pytest.mark.parametrize(
    "name",
    ["x" * 1000, "../x", "..", ".", "BTC/ETH", "a b", "%2F", "Ünïcode/日本語", "🛷", "\x00\n"],
)
def test_any_non_empty_name_is_a_name(world, name):
    member = world.join(name, group=name)
    with member.await_role(name, LONG_S) as role:
        assert role.name == name
        assert member.owner(name) == name
        assert member.members[0].name == name


@pytest.mark.parametrize("name", ["", None, 7, b"x", ["x"], "\ud800", "x" * 9000])
def test_what_is_no_name_is_refused(world, name):
    member = world.join("a")
    for use in (
        member.get_role,
        member.await_role,
        member.can_take,
        member.owner,
        member.on_role,
        lambda given: member.roles([given]),
        lambda given: world.make("a", group=given),
        lambda given: world.make(given) if given is not None else world.make(""),
    ):
        with pytest.raises(rink.ConfigError, match="name"):
            use(name)


def test_grace_gives_the_claim_up_and_says_so(world, caplog):
    a = world.join("a", grace=0.05)
    role = a.await_role(owned_by(1, 2), LONG_S)
    b = world.join("b")
    with b.await_role(role.name, LONG_S) as new:
        assert new.token > role.token
        assert role.lost.is_set()
    until(a, lambda: a.status().draining == ())
    errors = [r.getMessage() for r in caplog.records if r.levelno == logging.ERROR]
    assert any("the grace of 0.05 s is over" in text for text in errors), errors
    assert "grace" in a.status().last_error
    role.release()


def test_waiting_threads_of_a_left_group_are_told(world, apart):
    a, _ = world.pair()
    waits = [apart(a.await_role, name) for name in owned_by(1, 2, 3)]
    until(a, lambda: len(a.status().waiting_for) == 3)
    a.leave()
    for wait in waits:
        with pytest.raises(rink.ClosedError, match="has been left"):
            wait.result(LONG_S)


def test_waiting_threads_of_a_closed_session_are_told(world, apart):
    session = world.session()
    a = world.make("a", session=session).join()
    world.join("b")
    until(a, lambda: a.size == 2)
    wait = apart(a.await_role, owned_by(1, 2))
    until(a, lambda: a.status().waiting_for)
    session.close()
    with pytest.raises(rink.ClosedError):
        wait.result(LONG_S)


def test_custom_scheme_works_end_to_end(world):
    def by_length(role, size):
        return len(role) % size

    name = rink.register_scheme(by_length, "by-length", 1)
    a, b = world.pair(scheme=name)
    until(a, lambda: a.version.scheme == name)
    with a.await_role("xx", LONG_S), b.await_role("x", LONG_S):
        assert (a.owner("x"), a.owner("xx")) == ("b", "a")
    assert a.get_role("y") is None


def test_scheme_that_fails_for_a_role_costs_only_that_role(world):
    def picky(role, size):
        if role == "poison":
            raise ValueError("I do not like it")
        return 0

    name = rink.register_scheme(picky, "picky", 1)
    member = world.join("a", scheme=name)
    until(member, lambda: member.version.scheme == name)
    with member.await_role("x", LONG_S) as role:
        with pytest.raises(rink.ConfigError, match="I do not like it"):
            member.get_role("poison")
        with pytest.raises(rink.ConfigError, match="I do not like it"):
            member.await_role("poison", 1)
        assert role.is_held
    with member.get_role("y") as role:
        assert raw(role).is_held


def test_wait_for_a_role_of_a_failing_scheme_ends_with_the_rank(world, apart):
    def pickier(role, size):
        if role == "poison":
            raise ValueError("I do not like it")
        return size - 1

    name = rink.register_scheme(pickier, "pickier", 1)
    world.join("a", scheme=name)
    b = world.join("b", scheme=name, rebalance_delay=0.3, initial_delay=0.3)
    waiting = apart(b.await_role, "poison")
    with pytest.raises(rink.ConfigError, match="I do not like it"):
        waiting.result(LONG_S)
    with b.await_role("x", LONG_S) as role:
        assert role.is_held
