"""The follower: one list, one watch behind it, and what it does where either breaks."""

import pytest

from rink.core.events import Changed, HistoryChanged, Listed, ListFailed, Nudged
from rink.core.keys import Keys
from rink.engine.follower import Follower
from rink.errors import EtcdError
from rink.etcd.api import Delete, Put, WatchBroken, WatchEvents
from rink.testing.memory import MemoryCluster

KEYS = Keys.of("rink/", "g")


class Time:
    """A clock that stands where it is put."""

    seconds = 1000.0

    def now(self):
        return self.seconds


class Inline:
    """Calls that are made when the test says so."""

    def __init__(self):
        self.waiting = []

    def submit(self, call):
        self.waiting.append(call)

    def make(self):
        while self.waiting:
            self.waiting.pop(0)()


class Setting:
    def __init__(self):
        self.time, self.calls, self.events = Time(), Inline(), []
        self.cluster = MemoryCluster(clock=self.time, pumped=True)
        self.etcd, self.other = self.cluster.client(), self.cluster.client()
        self.follower = Follower(self.etcd, KEYS, self.calls, self.time, self.events.append)

    def put(self, name="a", value=b"{}"):
        return self.other.txn((), (Put(KEYS.member(name), value),)).header.revision

    def run(self):
        self.calls.make()
        self.cluster.pump()
        seen, self.events[:] = list(self.events), []
        return seen


@pytest.fixture
def setting():
    made = Setting()
    yield made
    made.follower.close()
    made.calls.make()
    made.cluster.close()


def test_it_lists_once_and_follows_from_there(setting):
    revision = setting.put("a")
    setting.follower.start()
    [listed] = setting.run()
    assert isinstance(listed, Listed)
    assert (listed.revision, [entry.name for entry in listed.entries]) == (revision, ["a"])
    later = setting.put("b")
    [changed] = setting.run()
    assert isinstance(changed, Changed)
    assert (changed.revision, changed.changes[0].name) == (later, "b")
    setting.other.txn((), (Delete(KEYS.member("b")),))
    [changed] = setting.run()
    assert changed.changes[0].id == "b"


def test_what_lies_beside_the_group_is_not_seen(setting):
    setting.follower.start()
    setting.run()
    for key in (b"rink/g", b"rink/g0", b"rink/gg/members/a", b"rink/f/members/a"):
        setting.other.txn((), (Put(key, b"{}"),))
    assert setting.run() == []


def test_a_compacted_watch_is_listed_anew_at_once(setting):
    setting.follower.start()
    setting.run()
    setting.etcd.cut()
    for _ in range(5):
        revision = setting.put()
    setting.cluster.compact(revision)
    setting.etcd.heal()
    assert [type(event) for event in setting.run()] == [Nudged]
    assert setting.follower.wake_at == setting.time.now()
    setting.follower.start()
    assert setting.follower.wake_at is None
    [listed] = setting.run()
    assert listed.revision == revision


def test_a_watch_that_cannot_be_opened_for_whatever_reason_is_tried_again(setting, monkeypatch):
    def fails(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(setting.etcd, "watch", fails)
    setting.follower.start()
    assert [type(event) for event in setting.run()] == [ListFailed]
    monkeypatch.undo()
    setting.follower.restart_soon()
    setting.follower.start()
    setting.put("a")
    [listed] = setting.run()
    setting.put("b")
    [changed] = setting.run()
    assert (type(listed), type(changed)) == (Listed, Changed)


def test_a_list_that_fails_says_so_and_is_tried_again_after_a_while(setting):
    setting.etcd.cut()
    waits = []
    for _ in range(6):
        setting.follower.start()
        [failed] = setting.run()
        assert isinstance(failed, ListFailed)
        setting.follower.restart_soon()
        waits.append(setting.follower.wake_at - setting.time.now())
    assert waits[0] < 0.1
    assert waits[-1] > waits[0]
    setting.etcd.heal()
    setting.follower.start()
    [listed] = setting.run()
    assert isinstance(listed, Listed)
    setting.follower.restart_soon()
    assert setting.follower.wake_at - setting.time.now() < 0.1  # it counts from the beginning


def test_a_watch_that_breaks_says_so(setting):
    setting.follower.start()
    setting.run()
    setting.follower._deliver(1, WatchBroken(EtcdError("why ever")))
    assert isinstance(setting.run()[0], ListFailed)


def test_another_history_is_told_from_the_watch_and_from_the_list(setting):
    backup = setting.cluster.backup()
    setting.put()
    setting.follower.start()
    setting.run()
    setting.cluster.restore_backup(backup)
    assert [type(event) for event in setting.run()] == [HistoryChanged]
    setting.follower.start()
    assert [type(event) for event in setting.run()] == [HistoryChanged]
    setting.follower.start()
    assert [type(event) for event in setting.run()] == [Listed]


def test_what_an_earlier_round_still_delivers_is_not_heard(setting):
    setting.follower.start()
    setting.run()
    setting.follower.start()
    late = WatchEvents(99, ())
    setting.follower._deliver(1, late)
    setting.follower._deliver(1, WatchBroken(EtcdError("late")))
    assert setting.events == []
    assert [type(event) for event in setting.run()] == [Listed]
    assert len(setting.etcd.streams) == 1  # the first watch has been closed


def test_a_list_that_was_overtaken_is_not_heard(setting):
    setting.follower.start()
    setting.follower.start()
    seen = setting.run()
    assert [type(event) for event in seen] == [Listed]
    assert len(setting.etcd.streams) == 1
    setting.etcd.cut()
    setting.follower.start()
    setting.follower.close()
    assert setting.run() == []


def test_a_close_ends_the_watch_also_one_that_is_being_opened(setting):
    setting.follower.start()
    opened = setting.etcd.watch

    def opens_late(*arguments):
        watch = opened(*arguments)
        setting.follower.close()
        return watch

    setting.etcd.watch = opens_late
    setting.run()
    setting.put()
    assert setting.run() == []
    assert setting.etcd.streams == []


def while_it_opens(setting, monkeypatch, happens):
    """Have a put be seen, and something else happen, while the next watch opens."""
    made = setting.etcd.watch

    def watch(*args):
        opened = made(*args)

        def wait_open(_seconds):
            setting.put("b")
            setting.cluster.pump()
            happens()
            return True

        monkeypatch.setattr(opened, "wait_open", wait_open, raising=False)
        return opened

    monkeypatch.setattr(setting.etcd, "watch", watch)


def test_a_list_is_told_once_its_watch_is_open_and_before_what_that_brings(setting, monkeypatch):
    """etcd brings a watch that is opened behind a write up to date late, and a list leads to a write."""

    def nothing_is_told():
        assert setting.events == []

    while_it_opens(setting, monkeypatch, nothing_is_told)
    revision = setting.put("a")
    setting.follower.start()
    listed, changed = setting.run()
    assert (type(listed), listed.revision) == (Listed, revision)
    assert (type(changed), changed.revision) == (Changed, revision + 1)


def test_what_a_watch_brings_while_it_opens_is_not_told_once_the_next_list_has_begun(
    setting, monkeypatch
):
    while_it_opens(setting, monkeypatch, setting.follower.restart_soon)
    setting.follower.start()
    assert setting.run() == []
    monkeypatch.undo()
    setting.follower.start()
    [listed] = setting.run()
    assert [entry.name for entry in listed.entries] == ["b"]
