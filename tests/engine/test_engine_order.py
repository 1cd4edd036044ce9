"""Check the order of an engine's work: others' needs come first."""

from concurrent.futures import ThreadPoolExecutor

import pytest

import rink
from rink.core import effects as do
from rink.core import events as ev
from rink.core.holds import Handle
from rink.engine.engine import GRANT_PAUSE_S, LEAVE_PAUSE_S
from rink.engine.signals import Signal
from rink.errors import EtcdUnavailable
from rink.etcd.api import Delete
from rink.testing.virtual import virtual_time


def join(time, name):
    delays = {"rebalance_delay": 0.0, "initial_delay": 0.0}
    member = rink.Rink(time.session(), "g", name=name, scheme="first", **delays).join()
    time.settle()
    return member


def is_free(lock):
    def take():
        if lock.acquire(blocking=False):
            lock.release()
            return True
        return False

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(take).result(9.0)


@pytest.fixture
def time():
    with virtual_time() as made:
        yield made


@pytest.fixture
def noted():
    """Return the engines' actions in order, after a role is released."""
    return []


@pytest.fixture
def handed_over(time, noted, monkeypatch):
    """The handle of a role that one that leaves has handed over."""
    old, new = join(time, "a"), join(time, "b")._opened
    role, handle = old.await_role("x", 9.0), Handle("x", Signal(time.clock))
    with new.lock:
        new.table.want(handle)
    step_group, step_old_group = new.node.step_group, old._opened.node.step_group
    listen = old._opened.node.prefetch

    def noting(*arguments):
        noted.append(("group",))
        return step_group(*arguments)

    def listening(events):
        noted.append(("old", [type(one).__name__ for one in events]))
        return listen(events)

    def noting_old(*arguments):
        noted.append(("old group",))
        return step_old_group(*arguments)

    def way(seconds):
        giver = old._opened if seconds == LEAVE_PAUSE_S else new  # the other one may be stepping
        noted.append(("way", seconds, is_free(giver.lock)))

    def revoke(lease):
        revoked(lease)
        raise EtcdUnavailable("its answer was lost")  # and it is asked again a second later

    revoked = old._opened._etcd.revoke
    monkeypatch.setattr(old._opened._etcd, "revoke", revoke)
    monkeypatch.setattr(time.clock, "give_way", way)
    monkeypatch.setattr(new.node, "step_group", noting)
    monkeypatch.setattr(old._opened.node, "prefetch", listening)
    monkeypatch.setattr(old._opened.node, "step_group", noting_old)
    handle.signal.then(lambda: noted.append("granted"))
    role.release()
    old._opened.post(ev.LeaveAsked())
    time.settle()
    yield handle
    new.release(handle)


def test_grant_is_told_and_gives_way_before_the_group_is_looked_after(handed_over, noted):
    assert handed_over.hold is not None
    of_new = [one for one in noted if "old" not in one[0] and one[:2] != ("way", LEAVE_PAUSE_S)]
    at = of_new.index("granted")
    assert of_new[at + 1] == ("way", GRANT_PAUSE_S, True)
    assert of_new[at + 2][0] == "group"


def test_member_that_revoked_its_lease_pauses_and_drops_group_events(handed_over, noted):
    of_old = [one for one in noted if "old" in one[0] or one[:2] == ("way", LEAVE_PAUSE_S)]
    at = of_old.index(("way", LEAVE_PAUSE_S, True))
    assert of_old[at - 1][0] == "old", "the second half was stepped before it gave way"
    heard = [one for one in of_old[at + 1 :] if one[0] == "old"]
    assert heard == [("old", ["RevokeFailed"])]  # nothing of what others did since


def test_member_that_takes_another_lease_gives_nobody_way(time, monkeypatch):
    ways, engine = [], join(time, "a")._opened
    gave_back, seen = engine._gave_back, []

    def noting(effects):
        seen.extend(type(one) for one in effects)
        return gave_back(effects)

    monkeypatch.setattr(time.clock, "give_way", ways.append)
    monkeypatch.setattr(engine, "_gave_back", noting)
    time.cluster.client().txn((), (Delete(engine._keys.member("a")),))
    time.advance(9.0)
    assert do.RevokeLease in seen
    assert engine.table.gate.share is not None
    assert ways == []
