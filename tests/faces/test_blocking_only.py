"""Check threads and callbacks, which only the blocking face has."""

import asyncio
import gc
import queue
import sys
import threading
import warnings
from pathlib import Path

import pytest
from faces_support import LONG_S, QUICK, TTL_S, engine_of, owned_by, refusal, until, within

import rink
from rink.core.holds import Handle, made_by
from rink.engine import caller_context as callers_module
from rink.role_set import Tracker
from rink.testing.virtual import virtual_time


def test_release_at_the_loss_is_logged_after_the_loss(blocking, caplog):
    caplog.set_level("INFO", logger="rink")
    a = blocking.join("a")
    a.wait_ranked(LONG_S)
    waiting = a.await_role("job")
    role = waiting.__enter__()
    role.lost.then(lambda: waiting.__exit__(None, None, None))  # as a waiting thread may at once
    a.leave()
    verbs = [line.partition(" role 'job'")[0] for line in caplog.messages if "'job'" in line]
    assert verbs == [f"group 'g': {verb}" for verb in ("granted", "lost", "released")]


def test_blocking_call_from_a_callback_is_refused(blocking):
    caught = queue.SimpleQueue()
    session = blocking.session()

    def callback(rank):
        for call in (
            lambda: a.await_role("x"),
            a.leave,
            a.wait_settled,
            lambda: next(a.versions()),
            session.close,
        ):
            try:
                call()
            except rink.RinkError as error:
                caught.put(error)
            else:
                caught.put(None)

    a = blocking.make("a", session=session, on_rank_change=callback)
    a.join()
    errors = [caught.get(timeout=LONG_S) for _ in range(5)]
    assert [type(error) for error in errors] == [rink.WrongThreadError] * 5
    assert "thread of your own" in str(errors[0])
    with a.await_role("x", LONG_S) as role:  # nothing was changed by any of them
        assert role.is_held
    assert session.is_live


def test_what_does_not_block_may_be_called_from_a_callback(blocking):
    got = queue.SimpleQueue()
    a = blocking.make("a", on_rank_change=lambda rank: got.put((a.owner("x"), a.get_role)))
    a.join()
    owner, get_role = got.get(timeout=LONG_S)
    assert owner == "a"
    until(a, lambda: a.can_take("x"))
    get_role("x").release()


def test_blocking_call_in_an_event_loop_warns_once_and_names_aio(blocking, monkeypatch):
    monkeypatch.setattr(callers_module._LoopWarning, "once", False)
    a = blocking.make("a")

    async def main():
        a.join()
        a.await_role("x", LONG_S).release()
        a.leave()

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
    assert len(caught) == 1
    assert caught[0].category is RuntimeWarning
    assert "rink.aio" in str(caught[0].message)


def test_leaving_from_inside_a_roles_own_body_is_bounded(blocking, caplog):
    a, _ = blocking.pair(leave_timeout=0.3)
    with a.await_role(owned_by(0, 2), LONG_S) as role, within(10.0):
        a.leave()
        assert role.lost.is_set()
    assert any("and its claim ends with the lease" in r.getMessage() for r in caplog.records)


def test_leaving_from_inside_a_role_sets_own_with_is_bounded(blocking):
    a, _ = blocking.pair(leave_timeout=0.3)
    with a.roles([owned_by(0, 2)]) as roles, within(10.0):
        assert next(iter(roles)).gained
        roles._tracker.follow(True)  # somebody iterates, and looks no further
        a.leave()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_with_that_the_process_ends_in_does_not_wait_for_ever(blocking, kind):
    roles = []

    def ends():
        with blocking.make("a", leave_timeout=0.2) as a:
            roles.append(a.await_role("x", LONG_S))
            raise kind

    with within(10.0), pytest.raises(kind):
        ends()
    assert roles[0].lost.is_set()
    roles[0].release()


def test_join_under_way_ends_when_the_session_is_closed(blocking, apart):
    holder, session = blocking.make("a").join(), blocking.session()
    other = blocking.make("a", session=session)
    joining = apart(other.join)
    until(holder, lambda: engine_of(other))
    until(other, lambda: "still has its name" in other.status().last_error)
    session.close()
    with pytest.raises(rink.ClosedError, match="before it had been joined"):
        joining.result(LONG_S)
    holder.leave()


def test_functions_of_on_role_that_leave_do_not_wait_for_each_other(blocking, apart):
    a = blocking.make("a", leave_timeout=0.2)
    left, both = queue.SimpleQueue(), threading.Barrier(2)
    for name in ("x", "y"):

        @a.on_role(name)
        def leaves(role):
            both.wait(LONG_S)
            left.put(a.leave())

    a.join()
    assert [left.get(timeout=LONG_S) for _ in range(2)] == [None, None]


def test_function_that_never_ends_does_not_keep_the_leave_after_grace(blocking, caplog):
    goes_on = threading.Event()
    a = blocking.make("a", grace=0.1)
    began = threading.Event()

    @a.on_role("x")
    def hangs(role):
        began.set()
        goes_on.wait(LONG_S)

    a.join()
    assert began.wait(LONG_S)
    with within(10.0):
        a.leave()
    assert any("still runs" in record.getMessage() for record in caplog.records)
    goes_on.set()


def test_leaving_from_elsewhere_waits_for_the_body(blocking, apart):
    a, b = blocking.pair(leave_timeout=LONG_S)
    with a.await_role(owned_by(0, 2), LONG_S) as role:
        leaving = apart(a.leave)
        assert role.lost.wait(LONG_S)
        until(b, lambda: "a: has not released it yet" in refusal(b, role.name))
        assert not leaving.done()
    leaving.result(LONG_S)
    b.await_role(role.name, LONG_S).release()


def test_session_closed_inside_a_roles_own_body_is_bounded(blocking):
    session = blocking.session()
    a = blocking.make("a", session=session, leave_timeout=0.2).join()
    with a.await_role("x", LONG_S), within(10.0):
        session.close()


def test_body_ends_with_its_release_whatever_it_raises(blocking):
    a = blocking.join("a")
    with pytest.raises(ZeroDivisionError), a.await_role("x", LONG_S):
        raise ZeroDivisionError
    assert a.status().held == {}


def test_with_of_a_session_and_a_rink_joins_and_leaves(blocking):
    with rink.Session(blocking.cluster.client(), ttl=TTL_S) as session:
        with rink.Rink(session, "g", name="a", initial_delay=0) as a:
            a.await_role("x", LONG_S).release()
        assert engine_of(a).left.is_set()
    assert not session.is_live


def test_nothing_runs_before_the_join_and_nothing_after_the_close(blocking):
    of_others = set(threading.enumerate())  # a test before this one may have threads that end now

    def ours():
        new = set(threading.enumerate()) - of_others
        return {thread.name: thread for thread in new if thread.name.startswith("rink-")}

    session = rink.Session(blocking.cluster.client(), ttl=5)
    a = rink.Rink(session, "g", name="a")
    assert not ours()
    with session, a:
        assert {"rink-engine-g", "rink-leases"} <= ours().keys()
    for thread in ours().values():
        thread.join(LONG_S)
    assert not ours()


def test_engine_that_fails_gives_everything_up_and_says_so(blocking, apart, caplog):
    a, b = blocking.pair(leave_timeout=0.1)
    role = a.await_role(owned_by(0, 2), LONG_S)
    waiting = apart(a.await_role, owned_by(1, 2))
    until(a, lambda: a.status().waiting_for)
    engine = engine_of(a)

    def step(now, events, *_):
        raise RuntimeError("a bug of ours")

    engine.node.step_own = step
    engine.nudge()
    assert role.lost.wait(LONG_S)
    assert not role.is_held
    with pytest.raises(rink.ClosedError):
        waiting.result(LONG_S)
    for use in (lambda: a.await_role("x"), lambda: a.get_role("x")):
        with pytest.raises(rink.ClosedError):
            use()
    assert "a bug of ours" in a.status().last_error
    assert any(r.levelname == "CRITICAL" for r in caplog.records)
    assert not a.can_take(role.name)
    assert engine._lease_renewal._leases == {}
    role.release()
    a.leave()
    b.leave()


def test_hung_engine_loses_its_roles_before_another_member_gets_them(caplog):
    goes_on = threading.Event()

    def lines():
        return [r.getMessage() for r in caplog.records if "not renewed" in r.getMessage()]

    with virtual_time() as time:
        a, b = (rink.Rink(time.session(ttl=2), "g", name=name, **QUICK).join() for name in "ab")
        time.settle()
        role, engine = b.await_role(owned_by(1, 2), LONG_S), b._opened
        time.clock.mailboxes.discard(engine._mailbox)  # time does not wait for what hangs
        engine._turn = lambda messages: goes_on.wait(LONG_S)
        with a.await_role(role.name, LONG_S) as theirs:
            assert role.lost.is_set()
            assert not role.is_held
            assert theirs.token > role.token
        while len(lines()) < 2:  # they are written by a thread of their own
            time.advance(0.1)
        warning, error = lines()
        assert "(this member's engine does not answer)" in warning
        assert "the session and 1 role are lost" in error
        role.release()
        time.clock.mailboxes.add(engine._mailbox)
        del engine._turn
        goes_on.set()
        time.advance(5.0)
        assert b.rank == 1
        b.await_role(owned_by(1, 2), LONG_S).release()


@pytest.mark.parametrize("which", ["rink-engine", "rink-leases", "rink-callbacks"])
def test_join_whose_thread_fails_to_start_raises_and_keeps_nobody(blocking, monkeypatch, which):
    session = blocking.session()
    start = threading.Thread.start

    def refuse(thread):
        if thread.name.startswith(which):
            raise RuntimeError("can't start new thread")
        start(thread)

    settings = {"session": session, "on_rank_change": lambda _: None}
    before = set(threading.enumerate())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        member = blocking.make("a", **settings)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            member.join()
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("rink-callbacks"):
            thread.join(LONG_S)
            assert not thread.is_alive()
    with within(LONG_S):
        member.leave()
        blocking.make("b", **settings).join().leave()
        session.close()


@pytest.mark.filterwarnings("ignore:.*garbage-collected:ResourceWarning")
@pytest.mark.parametrize("moves", ["wanted", "held"])
def test_role_set_that_is_collected_while_a_role_moves_lets_go_of_it(blocking, moves):
    """The finalizer may come between two steps, and locks nothing."""
    a = blocking.join("a")
    name = owned_by(1, 2)
    roles = a.roles([name]).__enter__()
    tracker = roles._tracker

    class Dropping(dict):
        def __setitem__(self, key, value):
            tracker.drop()
            super().__setitem__(key, value)

    if moves == "held":
        until(a, lambda: roles.held)
        tracker._lost = Dropping()
        b = blocking.join("b")
        b.await_role(name, LONG_S).release()
    else:
        tracker.close()
        tracker = Tracker(engine_of(a), rink.Role, [name], lambda _: None)
        tracker.held = Dropping()
        tracker.start()
    until(a, lambda: tracker._closed and not engine_of(a).table.roles)


@pytest.mark.filterwarnings("ignore:.*garbage-collected:ResourceWarning")
def test_role_sets_that_are_dropped_leave_nothing_behind(blocking):
    a = blocking.join("a")
    waiting = len(engine_of(a).left._callbacks)
    for _ in range(5):
        a.roles(["x"]).__enter__()
        gc.collect()
    until(a, lambda: not engine_of(a).table.roles)
    assert len(engine_of(a).left._callbacks) == waiting


def test_role_that_waits_can_be_written_out(blocking):
    a = blocking.join("a")
    role = rink.Role(engine_of(a), Handle("x"))
    assert repr(role) == "<Role 'x' waits>"
    role.release()


def test_with_on_a_released_handle_is_refused(blocking):
    member = blocking.join("a")
    role = member.await_role("x", LONG_S)
    role.release()
    with pytest.raises(rink.UsageError, match="'x' was released before this `with`"), role:
        raise AssertionError("the body runs")
    assert not member.status().held


def test_with_on_a_handle_that_is_lost_is_entered_with_lost_set(blocking):
    a = blocking.join("a")
    role = a.await_role(owned_by(1, 2), LONG_S)
    b = blocking.join("b")
    assert role.lost.wait(LONG_S)
    with role:
        assert role.lost.is_set()
    b.await_role(role.name, LONG_S).release()


def test_place_of_every_kind_of_handle_is_the_users_line(blocking):
    a, began = blocking.join("a"), threading.Event()

    def line():
        return f"{__file__}:{sys._getframe(1).f_lineno}"

    awaited, at_await = a.await_role("x", LONG_S), line()
    got, at_get = a.get_role("x"), line()
    with a.roles(["y"]) as roles:
        at_with = f"{__file__}:{sys._getframe().f_lineno - 1}"
        until(a, lambda: roles.held)
        (in_set,) = roles.held.values()

        @a.on_role("z")
        def hangs(role):
            began.set()
            role.lost.wait(LONG_S)

        at_on_role = f"{__file__}:{hangs.__code__.co_firstlineno}"
        assert began.wait(LONG_S)
        (kept, functions) = engine_of(a).table.held["z"].handles
        assert made_by(awaited._handle) == at_await
        assert made_by(got._handle) == at_get
        assert made_by(in_set._handle) == at_with
        assert {made_by(kept), made_by(functions)} == {at_on_role}
    awaited.release()
    got.release()


def test_place_of_a_handle_taken_by_rinks_own_thread_lies_in_rink(blocking):
    places = queue.SimpleQueue()
    own = "def take():\n    places.put(made_at())\n"
    code = compile(own, str(Path(rink.__file__).parent / "own.py"), "exec")
    names = {"places": places, "made_at": callers_module.made_at}
    exec(code, names)
    threading.Thread(target=names["take"]).start()
    found = Handle("x", None, places.get(timeout=LONG_S))
    assert made_by(found).endswith("own.py:2")
