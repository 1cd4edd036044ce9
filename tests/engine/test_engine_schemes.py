"""Check that no scheme is called under an engine's lock (R2)."""

import pytest

import rink
from rink.core import codec, placement, schemes
from rink.core.holds import Handle
from rink.core.keys import Keys
from rink.core.values import Request, Wish
from rink.engine.signals import Signal
from rink.etcd.api import Delete, Put
from rink.testing.virtual import virtual_time

KEYS = Keys.of("rink/", "g")


@pytest.fixture
def time():
    with virtual_time() as made:
        yield made


class Spy:
    """A scheme that notes its calls, and whether the caller holds a lock."""

    def __init__(self):
        self.engines = []
        self.asked = []
        self.under_a_lock = []

    def __call__(self, role, size):
        self.asked.append((role, size))
        if any(engine.is_interrupted() for engine in self.engines):
            self.under_a_lock.append((role, size))
        return self.place(role, size)

    def place(self, role, size):
        return len(role) % size


@pytest.fixture
def spy(monkeypatch):
    monkeypatch.setattr(schemes, "_custom", {})
    made = Spy()
    made.name = schemes.register(made, "spy", 1)
    made.asked.clear()
    return made


def join(time, spy, name, **settings):
    delays = {"rebalance_delay": 0.0, "initial_delay": 0.0}
    member = rink.Rink(time.session(), "g", name=name, scheme=spy.name, **{**delays, **settings})
    spy.engines.append(member._open())
    member._opened.joined.wait()
    time.advance(1.0)
    return member


def ask(time, *requests):
    etcd = time.cluster.client()
    puts = [Put(KEYS.request(f"u{i}"), codec.encode(request)) for i, request in enumerate(requests)]
    etcd.txn((), tuple(puts))
    time.advance(1.0)


def test_roles_pinned_by_a_coming_version_are_placed_without_the_lock(time, spy):
    a, b = join(time, spy, "a"), join(time, spy, "b")
    held = a.await_role("xx", 9.0)
    ask(time, Request(Wish.PIN, "xx", "b"), Request(Wish.PIN, "never asked for", "b"))
    assert b.owner("never asked for") == b.owner("xx") == "b"
    assert held.lost.is_set()
    assert ("never asked for", 2) in spy.asked
    assert spy.under_a_lock == []
    held.release()


def test_roles_pinned_in_a_listed_view_are_placed_without_the_lock(time, spy):
    join(time, spy, "a")
    ask(time, Request(Wish.PIN, "pinned", "a"))
    b = join(time, spy, "b")
    assert b.version.pins == {"pinned": "a"}
    b._session.etcd.cut()
    join(time, spy, "c")
    time.cluster.compact(time.cluster.store.revision)
    b._session.etcd.heal()
    time.advance(1.0)
    assert b.size == 3
    assert spy.under_a_lock == []


def test_roles_are_placed_for_a_version_that_is_the_newest_again(time, spy):
    """The newest version was deleted by hand, so the one before it counts."""
    a = join(time, spy, "a")
    ask(time, Request(Wish.PIN, "pinned", "a"))
    members = (a, join(time, spy, "b"), join(time, spy, "c"))
    roles = [one.await_role("x" * (3 + rank), 9.0) for rank, one in enumerate(members)]
    assert a.size == 3
    spy.asked.clear()
    time.cluster.client().txn((), (Delete(KEYS.version(a.version.number)),))
    time.advance(1.0)
    assert {("pinned", 2), ("xxx", 2)} <= set(spy.asked)
    assert spy.under_a_lock == []
    for role in roles:
        role.release()


def test_scheme_that_failed_is_asked_again_once_its_size_comes_back(time, spy):
    """A failure is kept while a share has that scheme and size."""
    place, broken = spy.place, {("odd", 1)}

    def fail_or_place(role, size):
        if (role, size) in broken:
            raise ValueError("not yet")
        return place(role, size)

    spy.place = fail_or_place
    a = join(time, spy, "a")
    with pytest.raises(schemes.SchemeFailed, match="not yet"):
        a.await_role("odd", 9.0)
    broken.clear()
    with pytest.raises(schemes.SchemeFailed, match="not yet"):
        a.await_role("odd", 9.0)
    b = join(time, spy, "b")
    assert (a.size, spy.asked.count(("odd", 1))) == (2, 1)
    b.leave()
    time.advance(1.0)
    assert a.size == 1
    with a.await_role("odd", 9.0) as role:
        assert role.is_held
    assert spy.asked.count(("odd", 1)) == 2
    assert spy.under_a_lock == []


def test_memory_of_ranks_that_is_full_costs_no_call_under_the_lock(time, spy, monkeypatch):
    monkeypatch.setattr(placement, "MAX_REMEMBERED", 8)
    a, b = join(time, spy, "a"), join(time, spy, "b")
    roles = [one.await_role(f"{n:06d}" + "x" * n, 9.0) for n, one in enumerate((a, b))]
    waits = Handle(roles[1].name, Signal(time.clock))
    assert not a._begin_wait(a._opened, waits, None)
    time.settle()
    for index in range(50):
        a.can_take(f"job-{index}")
        assert "b: owns it" in a.status().waiting_for[waits.role]
    c = join(time, spy, "c")
    for index in range(50):
        for one in (a, b, c):
            one.can_take(f"job-{index}")
        c.status()
    time.advance(100.0)
    assert c.rank == 2
    assert len(a._opened.node.placement.ranks(spy.name, 3)) < 20
    assert spy.under_a_lock == []
    a._opened.drop(waits)
    for role in roles:
        role.release()


def test_status_asks_no_scheme_under_the_lock_for_a_role_just_awaited(time, spy):
    a, b = join(time, spy, "a"), join(time, spy, "b")
    engine, waits = a._opened, Handle("xyz", Signal(time.clock))
    assert a.rank == 0
    with engine.lock:
        engine.table.want(waits)
    assert a.status().waiting_for == {"xyz": "b: owns it in version 2"}
    assert ("xyz", 2) in spy.asked
    engine.nudge()
    time.settle()
    assert a.status().waiting_for == {"xyz": "b: owns it in version 2"}
    assert b.can_take("xyz")
    assert spy.under_a_lock == []
    engine.drop(waits)


def test_waits_that_go_on_being_added_keep_the_engine_from_no_step(time, spy):
    """With a slow scheme, one role is always left for the next step."""
    a = join(time, spy, "a")
    engine, flood, steps = a._opened, [], []
    step, place = engine.node.step_own, spy.place

    def add():
        if len(flood) < 300:
            flood.append(Handle(f"job-{len(flood)}", Signal(time.clock)))
            with engine.lock:
                engine.table.want(flood[-1])

    def counted(*what):
        steps.append(len(flood))
        return step(*what)

    def flooding(role, size):
        add()
        return place(role, size)

    engine.node.step_own, spy.place = counted, flooding
    add()
    engine.nudge()
    time.advance(1.0)
    held, waiting = [handle.hold for handle in flood], a.status().waiting_for
    for handle in flood:
        engine.drop(handle)
    assert len(held) == 300
    assert steps[0] < 10
    assert all(held)
    assert not waiting
    assert spy.under_a_lock == []
