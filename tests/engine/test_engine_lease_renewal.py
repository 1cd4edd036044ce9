"""Check that leases are renewed, and deadlines watched (R6)."""

import threading

import pytest

from rink.core.outage import stalled
from rink.engine.lease_renewal import LeaseRenewal
from rink.errors import EtcdUnavailable
from rink.testing.virtual_clock import VirtualClock


class Owner:
    """Stand in for an engine; `answers` says whether it is alive."""

    def __init__(self, clock):
        self.clock = clock
        self.deadline = self.overdue_at = float("inf")
        self.ticks_answered = 0
        self.answers = True
        self.trouble = ""
        self.heard = []

    def tick(self):
        self.heard.append(("tick", self.clock.now()))
        if self.answers:
            self.ticks_answered += 1

    def renewed(self, lease, sent_at, call):
        self.heard.append(("renewed", sent_at))

    def ended(self, lease):
        self.heard.append(("ended", self.clock.now()))

    def overdue(self, words):
        self.heard.append((words, self.clock.now()))

    def expire(self):
        self.heard.append(("expire", self.clock.now()))

    def log_pending(self):
        self.heard.append(("log", self.clock.now()))

    def times(self, what):
        return [round(at - 1000.0, 3) for said, at in self.heard if said == what]


class Setting:
    def __init__(self):
        self.clock = VirtualClock()
        self.etcd = self.clock.cluster.client()
        self.words = f"{self.etcd!r} is cut"
        self.renewal = LeaseRenewal(self.etcd, self.clock)
        self.renewal.start()

    def owner(self, ttl=6):
        owner = Owner(self.clock)
        owner.lease = self.etcd.grant(ttl).lease
        self.renewal.keep(owner, owner.lease, ttl)
        return owner


@pytest.fixture
def setting():
    made = Setting()
    yield made
    end(made)


def end(setting):
    setting.renewal.close()
    setting.clock.settle()
    setting.clock.cluster.close()


def test_lease_is_renewed_every_sixth_of_its_ttl(setting):
    owner = setting.owner(ttl=6)
    setting.clock.advance(3.5)
    assert owner.times("renewed") == [0.0, 1.0, 2.0, 3.0]
    assert owner.times("tick") == owner.times("renewed")


def test_leases_are_renewed_each_in_its_own_time_on_one_stream(setting):
    one, two = setting.owner(ttl=6), setting.owner(ttl=12)
    setting.clock.advance(4.1)
    assert one.times("renewed") == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert two.times("renewed") == [0.0, 2.0, 4.0]
    assert len(setting.etcd.streams) == 1


def test_lease_is_not_renewed_while_its_engine_does_not_answer(setting):
    hangs, lives = setting.owner(), setting.owner()
    setting.clock.advance(0.5)
    hangs.answers = False
    setting.clock.advance(3.0)
    assert hangs.times("renewed") == [0.0, 1.0]  # the second is what asked for the sign of life
    assert lives.times("renewed") == [0.0, 1.0, 2.0, 3.0]
    hangs.answers = True
    hangs.ticks_answered += 1
    setting.clock.advance(0.1)
    assert hangs.times("renewed")[-1] >= 3.5


def test_renewal_tells_when_no_keepalive_is_answered_and_why(setting):
    owner = setting.owner()
    owner.overdue_at = setting.clock.now() + 2.0
    setting.etcd.cut()
    setting.clock.advance(1.9)
    assert owner.times(setting.words) == []
    setting.clock.advance(1.2)
    assert owner.times(setting.words)


def test_renewal_tells_it_at_that_moment_not_at_the_next_renewal(setting):
    owner = setting.owner(ttl=60)
    owner.overdue_at = setting.clock.now() + 2.345
    setting.clock.advance(2.5)
    assert owner.times("etcd is silent")[0] == 2.345


def test_renewal_says_where_the_engine_is_what_does_not_answer(setting):
    owner = setting.owner()
    owner.answers = False
    owner.overdue_at = setting.clock.now() + 2.0
    setting.clock.advance(2.5)
    words = "this member's engine does not answer"
    assert owner.times(words)[0] == 2.0


def test_renewal_says_where_answers_do_not_count(setting):
    owner = setting.owner()
    owner.trouble = "answers do not count"
    owner.overdue_at = setting.clock.now() + 2.0
    setting.clock.advance(2.5)
    assert owner.times("answers do not count")[0] == 2.0


def test_renewal_names_the_trouble_with_etcd_before_a_busy_engine(setting):
    owner = setting.owner()
    setting.etcd.cut()
    owner.answers = False
    owner.overdue_at = setting.clock.now() + 2.0
    setting.clock.advance(2.5)
    assert owner.times(setting.words)[0] == 2.0


@pytest.mark.parametrize("is_cut", [False, True])
def test_renewal_says_where_the_process_did_not_run(setting, is_cut):
    """SIGSTOP, or an extension module with the GIL, can cause this."""
    owner = setting.owner()
    setting.clock.advance(0.5)
    if is_cut:
        setting.etcd.cut()
    owner.overdue_at = setting.clock.now() + 2.0
    setting.clock._now += 3.0
    setting.clock.advance(0.1)
    words = f"{setting.words}; {stalled(2.5)}" if is_cut else stalled(2.5)
    assert owner.times(words)[0] == 3.5


def test_renewal_does_not_blame_a_short_stop_of_the_process(setting):
    owner = setting.owner()
    owner.overdue_at = setting.clock.now() + 1.0
    setting.clock.advance(0.5)
    setting.clock._now += 1.2
    setting.clock.advance(0.1)
    assert owner.times("etcd is silent")[0] == 1.7


def test_deadline_is_watched_though_the_engine_hangs(setting):
    owner = setting.owner()
    owner.answers = False
    owner.deadline = setting.clock.now() + 2.345
    setting.clock.advance(2.3)
    assert owner.times("expire") == []
    setting.clock.advance(0.2)
    assert owner.times("expire")[0] == 2.345


def test_deadline_is_watched_though_etcd_is_gone(setting):
    owner = setting.owner()
    setting.etcd.cut()
    owner.deadline = setting.clock.now() + 4.0
    setting.clock.advance(4.0)
    assert owner.times("expire")[0] == 4.0


def test_lease_that_etcd_has_ended_is_told(setting):
    owner = setting.owner()
    setting.clock.advance(0.5)
    setting.etcd.revoke(owner.lease)
    setting.clock.advance(1.0)
    assert owner.times("ended") == [1.0]


def test_dropped_lease_is_neither_renewed_nor_heard_of(setting):
    owner = setting.owner()
    setting.clock.advance(0.5)
    setting.renewal.drop(owner.lease)
    setting.renewal.drop(owner.lease)
    setting.clock.advance(20.0)
    assert owner.times("renewed") == [0.0]
    assert setting.etcd.time_to_live(owner.lease) == -1


def test_nothing_is_renewed_after_the_close(setting):
    owner = setting.owner()
    setting.clock.advance(0.5)
    setting.renewal.close()
    late = setting.owner()
    setting.clock.advance(5.0)
    assert owner.times("renewed") == [0.0]
    assert late.heard == []
    assert setting.etcd.streams == []


def test_tenant_that_raises_costs_the_others_nothing(setting):
    bad, good = setting.owner(), setting.owner()

    def raises():
        raise RuntimeError("a bug of ours")

    bad.tick = raises
    setting.clock.advance(2.5)
    assert good.times("renewed") == [0.0, 1.0, 2.0]


def refuse(_):
    raise RuntimeError("can't start new thread")


def test_renewal_whose_thread_fails_to_start_is_started_again(monkeypatch):
    setting = Setting.__new__(Setting)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            setting.__init__()
    setting.renewal.start()
    setting.renewal.start()
    owner = setting.owner(ttl=6)
    setting.clock.advance(1.5)
    assert owner.times("renewed") == [0.0, 1.0]
    assert len(setting.etcd.streams) == 1
    end(setting)


def test_renewal_whose_stream_gets_no_thread_opens_it_later(setting, monkeypatch, caplog):
    opened, keepalives = [], setting.etcd.keepalives

    def fails(deliver):
        opened.append(setting.clock.now())
        if len(opened) < 4:
            raise EtcdUnavailable("no thread for a stream")
        return keepalives(deliver)

    monkeypatch.setattr(setting.etcd, "keepalives", fails)
    owner = setting.owner(ttl=6)
    setting.clock.advance(2.0)
    assert len(opened) == 4
    assert owner.times("renewed") == [0.15, 1.15]
    assert len([one for one in caplog.records if "renewal failed" in one.getMessage()]) == 1
