"""Test pitfalls 9 and 14, by their rows in tests/README.md."""

import threading
from datetime import datetime, timedelta

import pytest

import rink
from rink.core.schemes import rank_of
from rink.session import Session
from rink.testing.virtual import virtual_time

TTL = 9.0


class Skewed:
    """A virtual clock with a calendar that is wrong by some hours."""

    def __init__(self, clock, hours):
        self._clock, self._off_by = clock, timedelta(hours=hours)

    def __getattr__(self, name):
        return getattr(self._clock, name)

    def wall(self, ahead=0.0):
        return (datetime.fromisoformat(self._clock.wall(ahead)) + self._off_by).isoformat()


def rolling_deploy(hours):
    """Run a group through growth, a crash and a leave, on wrong calendars."""
    story, walls = [], set()
    with virtual_time() as time:
        members = {}

        def tell(what):
            time.advance(1.0)
            for name, member in members.items():
                status = member.status()
                told = (
                    status.version,
                    status.ranks,
                    status.because,
                    status.coordinator,
                    status.rank,
                )
                story.append((what, time.now(), name, *told, dict(status.held)))
                walls.update(one.joined[:13] for one in status.members)

        for name, off_by in zip("abc", hours, strict=True):
            clock = Skewed(time.clock, off_by)
            session = Session(time.cluster.client(), clock=clock, ttl=TTL)
            time._sessions.append(session)
            settings = {"rebalance_delay": 20.0, "initial_delay": 2.0, "leave_delay": 15.0}
            members[name] = rink.Rink(session, "g", name=name, **settings).join()
            tell(f"{name} joins")
            time.advance(12.0)
            tell("later")
        time.advance(30.0)
        tell("grown")
        members["b"]._session.etcd.cut()
        time.advance(TTL)
        tell("b is cut off")
        time.advance(40.0)
        members["b"]._session.etcd.heal()
        tell("b is back")
        time.advance(40.0)
        members.pop("a").leave()
        tell("the coordinator has left")
        time.advance(40.0)
        tell("settled")
    return story, walls


@pytest.mark.parametrize("hours", [(0, 1, -1), (1, -1, 0), (-1, 0, 1)])
def test_pitfall_14_wall_clocks_an_hour_apart_change_nothing(hours):
    story, walls = rolling_deploy(hours)
    right, _ = rolling_deploy((0, 0, 0))
    assert len(walls) > 1  # the skew was there for everybody to see
    assert story == right


@pytest.fixture
def stuck():
    """Begin bodies of roles that end when the returned event is set."""
    lets_go, threads = threading.Event(), []

    def body(role):
        with role:
            lets_go.wait()

    def begin(role):
        threads.append(threading.Thread(target=body, args=(role,), daemon=True))
        threads[-1].start()

    def end():
        lets_go.set()
        for thread in threads:
            thread.join()

    yield begin, end
    end()


def test_pitfall_9_ten_stuck_roles_delay_none_of_990_losses(stuck):
    begin, end = stuck
    with virtual_time() as time:
        a, b = (rink.Rink(time.session(), "g", name=name, rebalance_delay=0.0) for name in "ab")
        a.join()
        time.advance(5.0)
        roles = [a.await_role(f"job-{index}", TTL) for index in range(1000)]
        moved, told = [role for role in roles if rank_of(role.name, 2) == 1], {}
        for role in moved:
            role.lost.then(lambda name=role.name: told.setdefault(name, time.now()))
        for role in moved[:10]:
            begin(role)
        b.join()
        time.advance(0.5)
        assert a.size == 2
        assert told.keys() == {role.name for role in moved}
        assert max(told.values()) - min(told.values()) < 0.001
        for role in moved[10:]:
            role.release()
        at = time.now()
        for role in moved[10:]:
            b.await_role(role.name, TTL).release()
        assert time.now() - at < 0.1
        assert not any(b.can_take(role.name) for role in moved[:10])
        end()
        for role in roles:
            role.release()
        for role in moved[:10]:
            b.await_role(role.name, TTL).release()
