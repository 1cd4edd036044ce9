"""Check when the waits of a leaving member end: after its releases."""

import threading

import pytest

import rink
from rink.core import events as ev
from rink.core.holds import Handle
from rink.core.schemes import rank_of
from rink.engine.signals import Signal
from rink.testing.virtual import virtual_time


@pytest.fixture
def time():
    with virtual_time() as made:
        yield made


@pytest.fixture
def leaver(time):
    """Return a member that holds a role, waits for others, and leaves."""
    delays = {"rebalance_delay": 0.0, "initial_delay": 0.0}
    members = [rink.Rink(time.session(), "g", name=name, **delays).join() for name in ("a", "b")]
    time.settle()
    return members[0]


def owned_by(rank, count):
    names = [f"r{i}" for i in range(999) if rank_of(f"r{i}", 2) == rank]
    return names[:count]


def wait_for(time, member, role, by=None):
    """Wait for a role, as a thread of its own does."""
    handle = Handle(role, Signal(time.clock), by=by)
    with member._opened.lock:
        member._opened.table.want(handle)
    member._opened.nudge()
    time.settle()
    return handle


def leave(time, member):
    member._opened.post(ev.LeaveAsked())
    time.settle()


def test_wait_ends_a_tenth_of_a_second_after_the_roles_were_lost(time, leaver):
    held = leaver.await_role(owned_by(0, 1)[0], 9.0)
    wait = wait_for(time, leaver, owned_by(1, 1)[0])
    leave(time, leaver)
    assert held.lost.is_set()
    assert not wait.signal.is_set()
    time.advance(0.09)
    assert not wait.signal.is_set()
    time.advance(0.02)
    assert wait.signal.is_set()
    assert not leaver._opened.left.is_set()
    held.release()


def test_wait_ends_with_the_lease_if_that_comes_first(time, leaver):
    held = leaver.await_role(owned_by(0, 1)[0], 9.0)
    wait = wait_for(time, leaver, owned_by(1, 1)[0])
    leave(time, leaver)
    held.release()
    time.settle()
    assert leaver._opened.left.is_set()
    assert wait.signal.is_set()


def test_engine_that_ends_is_busy_until_its_last_act(time, leaver, monkeypatch):
    """Else virtual time is settled while its waits have not ended."""
    engine, seen = leaver._opened, []
    close = engine.callbacks.close

    def noting():
        seen.append(engine._mailbox in time.clock.mailboxes)
        close()

    monkeypatch.setattr(engine.callbacks, "close", noting)
    leave(time, leaver)
    assert seen == [True]


def test_wait_ends_in_time_though_etcd_is_away(time, leaver):
    held = leaver.await_role(owned_by(0, 1)[0], 9.0)
    wait = wait_for(time, leaver, owned_by(1, 1)[0])
    leaver._session.etcd.cut()
    leaver._opened.post(ev.LeaveAsked(keep_rank=True))
    time.settle()
    assert held.lost.is_set()
    assert not wait.signal.is_set()
    time.advance(0.11)
    assert wait.signal.is_set()
    held.release()


def test_wait_inside_the_body_of_a_role_ends_at_once(time, leaver):
    """Its thread cannot release its own role while it waits."""
    held = leaver.await_role(owned_by(0, 1)[0], 9.0)
    inside = wait_for(time, leaver, owned_by(1, 1)[0], by=threading.get_ident())
    other = wait_for(time, leaver, owned_by(1, 2)[1], by=-1)
    leave(time, leaver)
    assert inside.signal.is_set()
    assert not other.signal.is_set()
    held.release()


def test_wait_inside_the_body_of_a_role_by_get_role_ends_at_once(time, leaver):
    held = leaver.get_role(owned_by(0, 1)[0])
    inside = wait_for(time, leaver, owned_by(1, 1)[0], by=threading.get_ident())
    leave(time, leaver)
    assert inside.signal.is_set()
    held.release()
