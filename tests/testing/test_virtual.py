"""Test virtual time on real engines: waits take no real time."""

import threading
import time as real

import pytest

import rink
import rink.aio
from rink.core.schemes import rank_of
from rink.testing.virtual_clock import VirtualClock


def test_waiting_member_is_ranked_after_its_rebalance_delay(rink_time):
    start = real.perf_counter()
    one = rink.Rink(rink_time.session(), "g", name="one", initial_delay=3600).join()
    rink_time.advance(61)
    two = rink.Rink(rink_time.session(), "g", name="two", rebalance_delay=3600).join()
    rink_time.advance(3599)
    assert one.size == 1
    rink_time.advance(2)
    assert (one.size, two.rank) == (2, 1)
    assert real.perf_counter() - start < 60


def test_wait_ends_with_the_role_and_takes_no_real_time(rink_time):
    one = rink.Rink(rink_time.session(), "g", name="one", initial_delay=1000).join()
    one.wait_settled()
    two = rink.Rink(rink_time.session(), "g", name="two", rebalance_delay=1000).join()
    role = next(f"r{i}" for i in range(99) if rank_of(f"r{i}", 2) == 1)
    before = rink_time.now()
    with two.await_role(role) as held:
        assert held.token > 0
        assert 990 < rink_time.now() - before < 1010


def test_wait_times_out_in_virtual_time(rink_time):
    one = rink.Rink(rink_time.session(), "g", name="one", initial_delay=86_400).join()
    role = one.await_role("leader")
    two = rink.Rink(rink_time.session(), "g", name="two", rebalance_delay=86_400).join()
    before = rink_time.now()
    with pytest.raises(
        rink.RoleTimeout, match="not ranked yet: the group grows for this member in about"
    ):
        two.await_role("leader", timeout=3600)
    assert rink_time.now() - before == pytest.approx(3600)
    role.release()


def test_member_that_is_cut_off_loses_its_roles_before_its_lease_ends(rink_time):
    session = rink_time.session(ttl=60)
    one = rink.Rink(session, "g", name="one").join()
    role = one.await_role("leader")
    session.etcd.cut()
    rink_time.advance(40)
    assert role.is_held
    rink_time.advance(15)
    assert role.lost.is_set()
    assert not role.is_held
    session.etcd.heal()
    role.release()
    with one.await_role("leader", timeout=120) as again:
        assert again.token > role.token


@pytest.mark.parametrize("face", [rink, rink.aio])
def test_session_without_the_virtual_clock_is_refused(rink_time, face):
    with pytest.raises(rink.ConfigError, match=r"pass clock=rink_time\.clock"):
        face.Session(rink_time.cluster.client())


class Reader:
    """A thread that reads a mailbox, and also wakes each `every` seconds."""

    def __init__(self, clock, every=None):
        self.mailbox, self.clock, self.every = clock.mailbox(), clock, every
        self.got, self.sleeps, self.before_first = [], 0, lambda: None
        self._sleep, self.mailbox.filled.wait = self.mailbox.filled.wait, self._count
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.mailbox.put("end")
        self._thread.join()

    def _count(self):
        self.sleeps += 1
        if self.sleeps == 1:
            self.before_first()
        self._sleep()

    def _run(self):
        while "end" not in self.got:
            until = self.every and self.clock.now() + self.every
            self.got += self.mailbox.take(until)
        self.mailbox.close()


def test_jump_wakes_nobody_but_those_whose_moment_has_come():
    clock = VirtualClock()
    idle, busy = Reader(clock), Reader(clock, every=1.0)
    with idle, busy:
        clock.advance(100.0)
        assert busy.sleeps >= 100
        assert idle.sleeps == 1


def test_message_that_a_finalizer_posts_on_the_reader_is_read():
    """The finalizer may run between the reader's last check and its wait."""
    clock = VirtualClock()
    reader = Reader(clock)
    reader.before_first = lambda: reader.mailbox.put("from a finalizer")
    with reader:
        clock.advance(3.0)
        assert reader.got == ["from a finalizer"]
