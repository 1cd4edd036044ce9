"""Check that a step publishes in one hold of the lock.

Its effects are carried out after that.
"""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

import rink
from rink.core.holds import Handle, Table
from rink.core.schemes import rank_of
from rink.engine.engine import Engine
from rink.engine.signals import Signal
from rink.testing.virtual import virtual_time


@pytest.fixture
def time():
    with virtual_time() as made:
        yield made


def join(time, name):
    delays = {"rebalance_delay": 0.0, "initial_delay": 0.0}
    return rink.Rink(time.session(), "g", name=name, **delays).join()


def owned_by(rank, size, count=1):
    names = [f"r{i}" for i in range(9999) if rank_of(f"r{i}", size) == rank]
    return names[:count]


def test_loss_is_signalled_without_the_lock_and_after_its_gate_closed(time):
    a, (name,) = join(time, "a"), owned_by(1, 2)
    role, engine = a.await_role(name, 9.0), a._opened
    gate, seen = engine.table.gate, []
    role._signal().then(lambda: seen.append((engine.is_interrupted(), engine.table.gate is gate)))
    join(time, "b")
    assert role.lost.wait(9.0)
    assert seen == [(False, False)]
    role.release()


def test_thousand_releases_that_come_together_are_taken_in_by_one_step(time):
    a, names = join(time, "a"), owned_by(1, 2, 1000)
    roles, engine = [a.await_role(name, 9.0) for name in names], a._opened
    join(time, "b")
    assert roles[0].lost.wait(9.0)
    time.settle()
    step, steps = engine.node.step_own, []

    def counted(now, events, *rest):
        steps.append(len(events))
        return step(now, events, *rest)

    engine.node.step_own = counted
    with engine.lock:  # with the first of them it waits here, and the others gather
        for role in roles:
            engine.drop(role._handle)
    time.settle()
    assert not engine.table.roles
    assert len(steps) < 10
    for role in roles:
        role.release()


def test_handle_is_dropped_by_a_finalizer_without_the_lock(time):
    """A finalizer may run on any thread.

    The thread that holds the lock may wait for that very thread.
    """
    a = join(time, "a")
    role, engine = a.await_role("x", 9.0), a._opened
    with ThreadPoolExecutor(1) as pool, engine.lock:
        pool.submit(engine.drop, role._handle).result(10.0)
        assert role.name in engine.table.held
    time.settle()
    assert role.name not in engine.table.held
    role.release()


def test_whoever_waits_is_woken_when_the_group_is_left(time):
    a, _ = join(time, "a"), join(time, "b")
    time.settle()
    waits = Handle(owned_by(1, 2)[0], Signal(time.clock))
    assert not a._begin_wait(a._opened, waits, None)
    engine = a._opened
    a.leave()
    engine._thread.join(10.0)  # its last act is to wake them
    assert waits.signal.is_set()
    assert waits.hold is None


def test_each_turn_is_followed_by_the_rest_that_is_due_after_it(time, monkeypatch):
    engine, rests = join(time, "a")._opened, []
    step = engine.node.step_own

    def slow(now, events, *rest):
        time.clock._now += 0.05
        return step(now, events, *rest)

    time.settle()
    monkeypatch.setattr(engine.node, "step_own", slow)
    monkeypatch.setattr(engine, "_rest", rests.append)
    engine.nudge()
    time.settle()
    assert rests == [pytest.approx(0.05)]


@pytest.mark.parametrize(
    ("took", "drains_for", "rests"),
    [(0.001, 9.0, 0.0), (0.02, 9.0, 0.06), (9.0, 9.0, 0.1), (9.0, 0.02, 0.02), (9.0, 0.0, 0.0)],
)
def test_while_roles_drain_user_code_gets_most_of_the_interpreter(took, drains_for, rests):
    """Without a rest, a few of 65,536 releases would cost a long turn each."""
    table = Table(lost={"given up": SimpleNamespace(given_up=True)})
    if drains_for:
        table.lost["r"] = SimpleNamespace(given_up=False)
    rested = 0.0

    def wait(_, seconds):
        nonlocal rested
        rested += seconds
        if rested >= drains_for:
            table.lost.pop("r", None)

    clock = SimpleNamespace(event=lambda: None, now=lambda: rested, wait=wait)
    Engine._rest(SimpleNamespace(clock=clock, table=table, lock=threading.RLock()), took)
    assert rested == pytest.approx(rests, abs=0.0021)
