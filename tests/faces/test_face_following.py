"""Check RoleSet, on_role and the callbacks, on both faces."""

import collections
import logging
import queue
import threading

import pytest
from faces_support import LONG_S, engine_of, owned_by, raw, until, within

import rink


class Changes:
    """Follows a RoleSet on a thread of its own; what it said lies in a queue."""

    def __init__(self, roles, apart):
        self.seen = queue.SimpleQueue()
        self.done = apart(self._follow, roles)

    def _follow(self, roles):
        for change in roles:
            assert change.lost is not change.gained
            self.seen.put((change.role.name, change.gained))

    def take(self, count):
        return {self.seen.get(timeout=LONG_S) for _ in range(count)}


def test_role_set_tells_what_is_gained_and_lost(world, apart):
    a = world.join("a")
    stays, goes = owned_by(0, 2), owned_by(1, 2)
    with a.roles([stays, goes, goes]) as roles:
        changes = Changes(roles, apart)
        assert changes.take(2) == {(stays, True), (goes, True)}
        b = world.join("b")
        assert changes.take(1) == {(goes, False)}
        with b.await_role(goes, LONG_S):
            assert list(roles.held) == [stays]
        b.leave()
        assert changes.take(1) == {(goes, True)}
        assert set(roles.held) == {stays, goes}
        assert all(role.is_held for role in roles.held.values())
    changes.done.result(LONG_S)
    assert a.status().held == {}


def test_role_set_that_nobody_iterates_follows_all_the_same(world):
    a = world.join("a")
    stays, goes = owned_by(0, 2), owned_by(1, 2)
    with a.roles([stays, goes]) as roles:
        until(a, lambda: len(roles.held) == 2)
        b = world.join("b")
        b.await_role(goes, LONG_S).release()
        until(a, lambda: list(roles.held) == [stays])
        b.leave()
        until(a, lambda: len(roles.held) == 2)
    assert (a.status().held, a.status().waiting_for, roles.held) == ({}, {}, {})


def test_role_set_without_iteration_keeps_one_change_of_a_role(world):
    a = world.join("a")
    stays, goes = owned_by(0, 2), owned_by(1, 2)
    with a.roles([stays, goes]) as roles:
        until(a, lambda: len(roles.held) == 2)
        for _ in range(5):
            b = world.join("b")
            b.await_role(goes, LONG_S).release()
            b.leave()
            until(a, lambda: len(roles.held) == 2)
        untold = raw(roles)._tracker._undelivered
        until(a, lambda: len(untold) == 2)
        assert [(role.name, gained) for role, gained in untold] == [(stays, True), (goes, True)]


def test_role_set_holds_a_role_before_it_tells_of_it(world):
    """Code that iterates looks at `held` as soon as it is told."""
    a, goes, seen = world.join("a"), owned_by(1, 2), []

    class Noted(collections.OrderedDict):
        def __setitem__(self, told, value):
            role, is_gained = told
            seen.append((is_gained, role.name in tracker.held))
            super().__setitem__(told, value)

    with a.roles([goes]) as roles:
        tracker = raw(roles)._tracker
        until(a, lambda: tracker._undelivered)
        tracker._undelivered = Noted()
        b = world.join("b")
        b.await_role(goes, LONG_S).release()
        b.leave()
        until(a, lambda: len(seen) == 2)
        assert seen == [(False, False), (True, True)]


def test_role_set_may_be_iterated_late_and_tells_of_nothing_that_is_over(world, apart):
    """Code that got the first grant would work beside another member."""
    a = world.join("a")
    stays, goes = owned_by(0, 2), owned_by(1, 2)
    with a.roles([stays, goes]) as roles:
        until(a, lambda: len(roles.held) == 2)
        b = world.join("b")
        with b.await_role(goes, LONG_S):
            changes = Changes(roles, apart)
            assert changes.take(1) == {(stays, True)}
            assert changes.seen.empty()
        b.leave()
        assert changes.take(1) == {(goes, True)}
        assert [len(hold.handles) for hold in engine_of(a).table.held.values()] == [1, 1]
    changes.done.result(LONG_S)
    assert (a.status().held, a.status().waiting_for) == ({}, {})


def test_role_set_iterated_again_yields_the_loss_of_a_yielded_grant(world, apart):
    a = world.join("a")
    goes = owned_by(1, 2)
    with a.roles([goes]) as roles:
        assert next(change.gained for change in roles)
        b = world.join("b")
        b.await_role(goes, LONG_S).release()
        changes = Changes(roles, apart)
        assert changes.take(1) == {(goes, False)}
        b.leave()
        assert changes.take(1) == {(goes, True)}
    changes.done.result(LONG_S)


def test_role_set_that_is_iterated_no_more_releases_what_is_lost(world):
    a = world.join("a")
    goes = owned_by(1, 2)
    with a.roles([goes]) as roles:
        for change in roles:
            assert change.gained
            break
        b = world.join("b")
        b.await_role(goes, LONG_S).release()


def test_end_of_a_role_set_releases_what_was_lost_and_not_looked_at(world):
    a = world.join("a")
    goes = owned_by(1, 2)
    with a.roles([goes]) as roles:
        assert next(iter(roles)).gained
        raw(roles)._tracker.follow(True)
        b = world.join("b")
        until(a, lambda: a.status().draining == (goes,))
    b.await_role(goes, LONG_S).release()
    a.leave()


def test_role_set_ends_when_the_group_is_left(world, apart):
    a = world.join("a")
    with a.roles(["x"]) as roles:
        changes = Changes(roles, apart)
        assert changes.take(1) == {("x", True)}
        a.leave()
        changes.done.result(LONG_S)
    assert changes.seen.get(timeout=LONG_S) == ("x", False)


def test_role_set_that_has_ended_is_iterated_to_its_end_again(world, apart):
    a = world.join("a")
    with a.roles(["x"]) as roles:
        assert next(change.gained for change in roles)
        a.leave()
        assert [change.gained for change in roles] == [False]
        assert list(roles) == []


def test_role_set_is_iterated_inside_its_with(world):
    member = world.join("a")
    roles = member.roles(["x"])
    assert roles.held == {}
    with pytest.raises(rink.ClosedError, match="inside its"):
        next(iter(roles))


def test_ten_thousand_roles_are_followed_without_a_thread_for_any(world):
    a = world.join("a")
    names = [f"job-{i}" for i in range(10_000)]
    threads = threading.active_count()
    with within(20.0), a.roles(names) as roles:
        until(a, lambda: len(raw(roles)._tracker.held) == 10_000)
        assert threading.active_count() < threads + 100  # a few begin with the first role
        b = world.join("b")
        table = engine_of(a).table  # status() would look at each of 10,000 waits after each step
        until(a, lambda: not table.lost and len(raw(roles)._tracker.held) < 6_000)
        with b.roles(names) as others:
            until(b, lambda: len(raw(others)._tracker.held) + len(raw(roles)._tracker.held) == 1e4)
    assert a.status().held == {}


def test_on_role_runs_while_the_role_is_held_and_again_after_a_loss(world):
    ran, ended = queue.SimpleQueue(), queue.SimpleQueue()
    name = owned_by(1, 2)
    a = world.make("a")

    @a.on_role(name)
    def work(role):
        ran.put(role.token)
        role.lost.wait(LONG_S)
        ended.put(role.token)

    a.join()
    first = ran.get(timeout=LONG_S)
    b = world.join("b")
    assert ended.get(timeout=LONG_S) == first
    b.await_role(name, LONG_S).release()
    b.leave()
    second = ran.get(timeout=LONG_S)
    assert second > first
    a.leave()
    assert ended.get(timeout=LONG_S) == second
    assert ran.empty()


def test_on_role_may_be_used_after_the_join(world):
    a = world.join("a")
    ran = threading.Event()
    a.on_role("x")(lambda role: ran.set())
    assert ran.wait(LONG_S)


def test_on_role_runs_again_after_an_error_with_a_pause(world, caplog):
    a, at = world.make("a"), []

    def work(role):
        at.append(engine_of(a).clock.now())
        if len(at) < 3:
            raise ValueError("at first it fails")
        role.lost.wait(LONG_S)

    assert a.on_role("x")(work) is work
    a.join()
    until(a, lambda: len(at) == 3)
    assert at[2] - at[1] > 0.02
    assert at[2] - at[0] < 10.0
    a.leave()
    said = [r for r in caplog.records if "on_role('x')" in r.getMessage()]
    assert [r.levelno for r in said] == [logging.ERROR] * 2
    assert said[0].exc_info[1].args == ("at first it fails",)


def test_on_role_that_returns_keeps_its_role(world):
    a = world.make("a")
    ran = threading.Event()
    a.on_role("x")(lambda role: ran.set())
    a.join()
    assert ran.wait(LONG_S)
    assert list(a.status().held) == ["x"]
    a.leave()


def test_callbacks_are_told_of_coordinator_rank_and_roles_in_order(world):
    seen = queue.SimpleQueue()
    threads = set()

    def note(*what):
        threads.add(threading.current_thread().name)
        seen.put(what)

    a = world.make(
        "a",
        on_coordinator_change=lambda coordinates: note("coordinates", coordinates),
        on_rank_change=lambda rank: note("rank", rank),
        on_role_change=note,
    ).join()
    assert [seen.get(timeout=LONG_S) for _ in range(2)] == [("coordinates", True), ("rank", 0)]
    name = owned_by(1, 2)
    with a.await_role(name, LONG_S) as role:
        assert seen.get(timeout=LONG_S) == (name, True)
        world.join("b")
        assert seen.get(timeout=LONG_S) == (name, False)
        assert role.lost.is_set()
    a.leave()
    assert ("coordinates", False) in [seen.get(timeout=LONG_S) for _ in range(2)]
    assert len(threads) == 1
    assert threads.pop().startswith("rink-callbacks")


def test_callback_that_raises_or_takes_long_harms_nobody(world, caplog):
    goes_on, called = threading.Event(), threading.Event()

    def slow(rank):
        assert goes_on.wait(LONG_S)
        raise ValueError("never mind")

    a = world.make("a", on_rank_change=slow, on_role_change=lambda *_: called.set()).join()
    with a.await_role("x", LONG_S) as role:  # while the callback before it is still running
        assert role.is_held
        assert not called.is_set()
        goes_on.set()
        assert called.wait(LONG_S)
    said = [r for r in caplog.records if "raised" in r.getMessage()]
    assert "slow" in said[0].getMessage()
    assert said[0].exc_info[1].args == ("never mind",)
