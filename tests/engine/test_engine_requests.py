"""Check the core's requests to etcd: each ends in an event."""

import queue
import threading

import attrs
import pytest

import rink
from rink.core import effects as do
from rink.core import events as ev
from rink.core.keys import Keys
from rink.core.member_record import MemberRecord
from rink.core.settings import MemberSettings
from rink.core.values import Version
from rink.engine.callbacks import Listeners
from rink.engine.request_threads import MAX_THREADS
from rink.engine.requests import Requests
from rink.errors import EtcdUnavailable
from rink.etcd.api import Put
from rink.testing.memory.cluster import MemoryCluster

KEYS = Keys.of("rink/", "g")
RECORD = MemberRecord("incarnation-1", 10)


class Time:
    seconds = 1000.0

    def now(self):
        return self.seconds

    def wall(self):
        return "2030-01-01T00:00:00.000+00:00"


class Inline:
    def submit(self, call):
        call()


class Setting:
    def __init__(self):
        self.time = Time()
        self.cluster = MemoryCluster(clock=self.time, pumped=True)
        self.etcd, self.other = self.cluster.client(), self.cluster.client()
        self.events = []
        calls = Inline(), Inline()
        self.requests = Requests(self.etcd, KEYS, "a", *calls, self.time, self.events.append)

    def ask(self, effect):
        """Make a request; the events it ended in."""
        self.requests.carry_out(effect)
        seen, self.events[:] = list(self.events), []
        return seen

    def lease(self, ttl=10):
        return self.etcd.grant(ttl).lease

    def value(self, key):
        found = self.other.range(key).kvs
        return found[0] if found else None

    def write(self, lease=None, compare=0, record=RECORD):
        return do.WriteRecord(1, lease or self.lease(), compare, record)


@pytest.fixture
def setting():
    made = Setting()
    yield made
    made.cluster.close()


def test_lease_grant_has_its_request_time_and_a_new_incarnation(setting):
    [one], [two] = setting.ask(do.GrantLease(10)), setting.ask(do.GrantLease(10))
    assert isinstance(one, ev.LeaseGranted)
    assert (one.ttl, one.sent_at) == (10, 1000.0)
    assert one.incarnation != two.incarnation
    assert setting.etcd.time_to_live(one.lease) == 10


def test_lease_counts_from_before_it_was_asked_for(setting, monkeypatch):
    grant = setting.etcd.grant

    def slow(ttl, **how):
        setting.time.seconds += 5.0
        return grant(ttl, **how)

    monkeypatch.setattr(setting.etcd, "grant", slow)
    [granted] = setting.ask(do.GrantLease(10))
    assert granted.sent_at == 1000.0


def test_lease_whose_grant_was_not_answered_is_ended(setting, monkeypatch):
    grant, asked = setting.etcd.grant, []

    def unanswered(ttl, **how):
        asked.append(grant(ttl, **how).lease)
        raise EtcdUnavailable("the answer was lost")

    monkeypatch.setattr(setting.etcd, "grant", unanswered)
    [failed] = setting.ask(do.GrantLease(10))
    assert isinstance(failed, ev.LeaseFailed)
    assert [setting.etcd.time_to_live(lease) for lease in asked] == [-1]


def test_lease_is_revoked(setting):
    lease = setting.lease()
    assert setting.ask(do.RevokeLease(lease)) == [ev.LeaseRevoked(lease)]
    assert setting.etcd.time_to_live(lease) == -1
    assert setting.ask(do.RevokeLease(lease)) == [ev.LeaseRevoked(lease)]


def test_record_is_written_where_its_compare_holds(setting):
    lease = setting.lease()
    [answer] = setting.ask(setting.write(lease))
    kv = setting.value(KEYS.member("a"))
    assert answer == ev.WriteAnswered(1, True, kv.mod_revision)
    assert kv.lease == lease
    changed = attrs.evolve(RECORD, draining=("x",))
    [answer] = setting.ask(setting.write(lease, kv.mod_revision, changed))
    assert answer.applied
    assert b'"draining":["x"]' in setting.value(KEYS.member("a")).value


def test_record_whose_compare_fails_is_answered_with_what_lies_there(setting):
    [first] = setting.ask(setting.write())
    [answer] = setting.ask(setting.write(record=attrs.evolve(RECORD, incarnation="other")))
    assert not answer.applied
    assert answer.member.record == RECORD
    assert answer.member.mod_revision == first.revision


def test_record_that_is_gone_is_answered_with_nothing(setting):
    [answer] = setting.ask(setting.write(compare=7))
    assert (answer.applied, answer.member) == (False, None)


def test_record_of_garbage_is_answered_as_somebodys(setting):
    setting.other.txn((), (Put(KEYS.member("a"), b"garbage"),))
    [answer] = setting.ask(setting.write())
    assert (answer.applied, answer.member.record) == (False, None)
    assert "not JSON" in answer.member.problem


def proclaim(setting, number, after=0, **more):
    [written] = setting.ask(setting.write())
    if not written.applied:
        written = written.member
    create = setting.value(KEYS.member("a")).create_revision
    version = Version(number, ("a",), "jump", because=("joined a",), by="a")
    return do.Proclaim(version, create, after, **more)


def test_version_is_proclaimed_once_and_with_the_time(setting):
    effect = proclaim(setting, 1)
    assert setting.ask(effect) == [ev.ProclaimAnswered(1, True)]
    assert b'"proclaimed":"2030-' in setting.value(KEYS.version(1)).value
    assert setting.ask(effect) == [ev.ProclaimAnswered(1, False)]


def test_version_follows_the_one_it_was_planned_from(setting):
    setting.ask(proclaim(setting, 1))
    after = setting.value(KEYS.version(1)).mod_revision
    assert setting.ask(proclaim(setting, 2, after + 1)) == [ev.ProclaimAnswered(2, False)]
    assert setting.ask(proclaim(setting, 3, after)) == [ev.ProclaimAnswered(3, False)]
    assert setting.ask(proclaim(setting, 2, after)) == [ev.ProclaimAnswered(2, True)]


def test_version_of_a_member_whose_record_is_another_by_now_is_refused(setting):
    effect = proclaim(setting, 1)
    stale = attrs.evolve(effect, create_revision=effect.create_revision - 1)
    assert setting.ask(stale) == [ev.ProclaimAnswered(1, False)]
    assert setting.value(KEYS.version(1)) is None


def test_request_is_deleted_with_the_version_that_carries_it_out(setting):
    setting.other.txn((), (Put(KEYS.request("wish"), b"{}"),))
    assert setting.ask(proclaim(setting, 1, requests=("wish",)))[0].applied
    assert setting.value(KEYS.request("wish")) is None


def test_old_versions_are_pruned(setting):
    for number in range(1, 6):
        setting.other.txn((), (Put(KEYS.version(number), b"{}"),))
    assert setting.ask(do.Prune(4)) == []
    assert [setting.value(KEYS.version(number)) is None for number in range(1, 6)] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_lease_is_looked_up_and_a_dead_record_removed_by_compare(setting):
    lease = setting.lease()
    assert setting.ask(do.LookUpLease("b", 5, lease)) == [ev.LeaseLookedUp("b", 5, True)]
    assert setting.ask(do.LookUpLease("b", 5, 99)) == [ev.LeaseLookedUp("b", 5, False)]
    revision = setting.other.txn((), (Put(KEYS.member("b"), b"{}"),)).header.revision
    assert setting.ask(do.RemoveRecord("b", revision - 1)) == []
    assert setting.value(KEYS.member("b")) is not None
    assert setting.ask(do.RemoveRecord("b", revision)) == []
    assert setting.value(KEYS.member("b")) is None


VERSION = Version(1, ("a",), "jump")

FAILS = [
    (do.GrantLease(10), lambda e: isinstance(e, ev.LeaseFailed)),
    (do.RevokeLease(7), lambda e: isinstance(e, ev.RevokeFailed) and e.lease == 7),
    (do.WriteRecord(3, 0, 0, RECORD), lambda e: isinstance(e, ev.WriteFailed) and e.attempt == 3),
    (do.ReadRecord(7, 1, 5, 2.0), lambda e: isinstance(e, ev.RecordReadFailed) and e.lease == 7),
    (do.Proclaim(VERSION, 2), lambda e: isinstance(e, ev.ProclaimFailed) and e.number == 1),
]
NAMES = [type(effect).__name__ for effect, _ in FAILS]


@pytest.mark.parametrize(("effect", "is_failure"), FAILS, ids=NAMES)
def test_request_without_an_answer_ends_in_its_failure(setting, effect, is_failure):
    setting.etcd.cut()
    [event] = setting.ask(effect)
    assert is_failure(event)
    assert isinstance(event.error, EtcdUnavailable)


@pytest.mark.parametrize(("effect", "is_failure"), FAILS, ids=NAMES)
def test_request_that_fails_unexpectedly_ends_in_its_failure_and_the_log(
    setting, effect, is_failure, monkeypatch, caplog
):
    def bug(*_, **__):
        raise ZeroDivisionError

    for name in ("grant", "revoke", "txn", "range"):
        monkeypatch.setattr(setting.etcd, name, bug)
    [event] = setting.ask(effect)
    assert is_failure(event)
    assert "an unexpected error" in caplog.text


@pytest.mark.parametrize(("effect", "is_failure"), FAILS, ids=NAMES)
def test_another_history_is_told_beside_the_failure(setting, effect, is_failure):
    setting.cluster.restore_backup(setting.cluster.backup())
    changed, failed = setting.ask(effect)
    assert isinstance(changed, ev.HistoryChanged)
    assert is_failure(failed)


@pytest.mark.parametrize(
    "effect", [do.Prune(5), do.LookUpLease("b", 5, 7), do.RemoveRecord("b", 5)]
)
def test_request_that_is_made_again_anyway_says_what_it_was_for(setting, effect):
    setting.etcd.cut()
    [event] = setting.ask(effect)
    assert isinstance(event, ev.ChoreFailed)
    assert event.doing.startswith(("pruning ", "looking up the leases ", "removing the dead "))


def test_own_record_is_read_as_etcd_has_it(setting):
    effect = do.ReadRecord(7, 2, 5, 2.0)
    assert setting.ask(effect) == [ev.RecordRead(7, 2, 5, None)]
    setting.ask(setting.write(lease := setting.lease()))
    [event] = setting.ask(effect)
    assert (event.member.record, event.member.lease) == (RECORD, lease)


def test_own_record_is_read_though_all_other_requests_hang():
    """Renewals wait for this read, and other requests may hang on one node."""
    goes_on, events = threading.Event(), queue.SimpleQueue()
    session = rink.Session(MemoryCluster().client())
    try:
        for _ in range(MAX_THREADS):
            session._request_threads.submit(goes_on.wait)
        requests = session._make_engine("g", MemberSettings("a", 10), Listeners())._requests
        requests._post = events.put
        requests.carry_out(do.WriteRecord(1, 7, 0, RECORD))
        requests.carry_out(do.ReadRecord(7, 2, 5, 2.0))
        assert events.get(timeout=20) == ev.RecordRead(7, 2, 5, None)
    finally:
        goes_on.set()
        session.close()


def test_lost_answer_is_a_failure_though_it_was_applied(setting):
    setting.etcd.lose_next_answer()
    lease = setting.lease()
    [event] = setting.ask(setting.write(lease))
    assert isinstance(event, ev.WriteFailed)
    [event] = setting.ask(setting.write(lease))
    assert (event.applied, event.member.record) == (False, RECORD)
