"""Check that `lost` is each handle's own: by loss, release, or collection."""

import contextlib
import gc
import queue
import threading

import pytest
from faces_support import LONG_S, engine_of, owned_by, raw, until, within

import rink
from rink import roles as roles_module


def test_lost_of_a_released_handle_is_set(world):
    member = world.join("a")
    role = member.await_role("x", LONG_S)
    early = role.lost
    assert not early.is_set()
    role.release()
    assert early.is_set()
    assert early.wait(0)
    assert role.lost.is_set()


def test_lost_first_asked_for_after_the_release_is_set(world):
    member = world.join("a")
    role = member.await_role("x", LONG_S)
    role.release()
    assert role.lost.wait(0)


def test_lost_is_set_at_the_end_of_a_with(world):
    member = world.join("a")
    with member.await_role("x", LONG_S) as role:
        lost = role.lost
        assert not lost.is_set()
    assert lost.is_set()


def test_lost_of_a_collected_handle_is_set(world, monkeypatch):
    monkeypatch.setattr(roles_module._ReleaseWarning, "once", True)
    member = world.join("a")
    role = member.await_role("x", LONG_S)
    lost = role.lost
    del role
    gc.collect()
    assert lost.is_set()
    until(member, lambda: not member.status().held)


def test_lost_of_a_collected_handle_is_set_before_the_engine_is_told(world):
    member = world.join("a")
    role = raw(member.await_role("x", LONG_S))
    engine, order = engine_of(member), []
    role._signal().then(lambda: order.append("lost"))
    tell = engine.drop
    engine.drop = lambda handle: (order.append("told"), tell(handle))
    role._drop()
    assert order == ["lost", "told"]


def test_drop_that_a_signal_handler_interrupts_releases_all_the_same(world):
    """No finalizer comes twice."""
    member = world.join("a")
    role = raw(member.await_role("x", LONG_S))

    def interrupt():
        raise KeyboardInterrupt

    role._signal().then(interrupt)
    with pytest.raises(KeyboardInterrupt):
        role._drop()
    until(member, lambda: not member.status().held)


def test_lost_wakes_a_helper_of_a_released_handle(world, apart):
    member = world.join("a")
    role = member.await_role("x", LONG_S)
    helper = apart(role.lost.wait, LONG_S)
    role.release()
    assert helper.result(LONG_S) is True


def test_lost_is_set_before_the_engine_is_told_of_the_release(world):
    member = world.join("a")
    role = raw(member.await_role("x", LONG_S))
    table, seen = engine_of(member).table, []
    role._signal().then(lambda: seen.append(list(table.held)))
    role.release()
    assert seen == [["x"]]
    assert not table.held


def test_release_of_one_handle_sets_only_its_own_lost(world):
    a = world.join("a")
    name = owned_by(1, 2)
    one, two = a.await_role(name, LONG_S), a.await_role(name, LONG_S)
    one.release()
    assert one.lost.is_set()
    assert not two.lost.is_set()
    assert two.is_held
    b = world.join("b")
    assert two.lost.wait(LONG_S)
    two.release()
    b.await_role(name, LONG_S).release()


def test_loss_sets_lost_of_every_handle(world):
    a = world.join("a")
    name = owned_by(1, 2)
    handles = [a.await_role(name, LONG_S) for _ in range(3)]
    early = handles[0].lost
    world.join("b")
    for role in handles:
        assert role.lost.wait(LONG_S)
        role.release()
    assert early.is_set()


def test_reason_of_a_lost_handle_stands_after_its_release(world):
    a = world.join("a")
    role = a.await_role(owned_by(1, 2), LONG_S)
    world.join("b")
    assert role.lost.wait(LONG_S)
    role.release()
    with pytest.raises(rink.RoleLost, match="changed the owner"):
        role.raise_if_lost()


def test_reason_of_a_released_handle_stands_after_a_loss(world):
    a = world.join("a")
    name = owned_by(1, 2)
    one, two = a.await_role(name, LONG_S), a.await_role(name, LONG_S)
    one.release()
    world.join("b")
    assert two.lost.wait(LONG_S)
    with pytest.raises(rink.RoleLost, match="released here"):
        one.raise_if_lost()
    with pytest.raises(rink.RoleLost, match="changed the owner"):
        two.raise_if_lost()
    two.release()


def test_release_is_not_told_as_a_loss(world):
    told = queue.SimpleQueue()
    a = world.join("a", on_role_change=lambda *what: told.put(what))
    a.await_role("x", LONG_S).release()
    a.await_role("y", LONG_S).release()
    assert [told.get(timeout=LONG_S) for _ in range(2)] == [("x", True), ("y", True)]
    a.leave()
    assert told.empty()


def test_release_of_a_role_sets_handle_is_no_change_of_the_set(world, apart):
    a = world.join("a")
    with a.roles(["x", "y"]) as roles:
        changes = iter(roles)
        gained = {next(changes).role.name for _ in range(2)}
        assert gained == {"x", "y"}
        roles.held["x"].release()
        leaving = apart(a.leave)
        assert [(change.role.name, change.lost) for change in changes] == [("y", True)]
        leaving.result(LONG_S)


def test_on_role_function_that_releases_is_not_called_again(world):
    a = world.join("a")
    name = owned_by(1, 2)
    calls, other = queue.SimpleQueue(), queue.SimpleQueue()

    @a.on_role(name)
    def work(role):
        calls.put(role.token)
        role.release()
        assert role.lost.is_set()

    first = calls.get(timeout=LONG_S)
    until(a, lambda: name in a.status().held)  # the role is kept, as where it returns without

    @a.on_role(owned_by(1, 2, 2)[1])
    def meanwhile(role):
        other.put(role.token)

    other.get(timeout=LONG_S)
    assert calls.empty()
    b = world.join("b")
    with b.await_role(name, LONG_S):
        pass
    b.leave()
    assert calls.get(timeout=LONG_S) > first
    with within(LONG_S):
        a.leave()


def test_helper_of_an_on_role_function_that_returned_sees_the_loss(world):
    a = world.join("a")
    began, ended = queue.SimpleQueue(), queue.SimpleQueue()

    @a.on_role(owned_by(1, 2))
    def begin(role):
        began.put(role)

    role = began.get(timeout=LONG_S)
    assert not role.lost.is_set()
    assert role.is_held
    threading.Thread(target=lambda: ended.put(role.lost.wait(LONG_S)), daemon=True).start()
    b = world.join("b")
    assert ended.get(timeout=LONG_S) is True
    b.await_role(role.name, LONG_S).release()


def test_loss_is_told_to_each_handle_of_the_role(world):
    a = world.join("a")
    handles = [a.await_role(owned_by(1, 2), LONG_S) for _ in range(5)]
    b = world.join("b")
    assert all(role.lost.wait(LONG_S) for role in handles)
    for role in handles:
        role.release()
    b.await_role(handles[0].name, LONG_S).release()


def test_role_set_dropped_amid_a_loss_takes_no_lock(world, monkeypatch):
    """The collector may run on the thread that holds the lock for that loss."""
    monkeypatch.setattr(roles_module._ReleaseWarning, "once", True)
    member, taken = world.join("a"), []

    class Noted(contextlib.nullcontext):
        def __enter__(self):
            taken.append(self)

    roles = member.roles(["x"])
    roles.__enter__()
    tracker = raw(roles)._tracker
    until(member, lambda: tracker.held)
    tracker.held["x"]._hold.lost_because = "version 9 changed the owner"
    monkeypatch.setattr(tracker, "_lock", Noted())
    tracker.drop()
    assert not taken
    until(member, lambda: not member.status().held)
