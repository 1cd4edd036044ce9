"""Check the group watch: its watch, its lists, and failures of both."""

import pytest

from rink.core.events import Changed, HistoryChanged, Listed, ListFailed
from rink.core.keys import Keys
from rink.engine import group_watch
from rink.engine.group_watch import GroupWatch, read_entry
from rink.errors import EtcdClusterChanged, EtcdError
from rink.etcd.api import Delete, KeyChange, KeyValue, Put, WatchBroken, WatchEvents, WatchOpened
from rink.testing.memory.cluster import MemoryCluster

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
        self.group_watch = GroupWatch(self.etcd, KEYS, self.calls, self.time, self.events.append)

    def put(self, name="a", value=b"{}"):
        return self.other.txn((), (Put(KEYS.member(name), value),)).header.revision

    def run(self):
        while self.calls.waiting or any(stream.pending for stream in self.cluster.streams):
            self.calls.make()
            self.cluster.pump()
        seen, self.events[:] = list(self.events), []
        return seen


@pytest.fixture
def setting():
    made = Setting()
    yield made
    made.group_watch.close()
    made.calls.make()
    made.cluster.close()


def test_it_lists_once_and_follows_from_there(setting):
    revision = setting.put("a")
    setting.group_watch.start()
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
    setting.group_watch.start()
    setting.run()
    for key in (b"rink/g", b"rink/g0", b"rink/gg/members/a", b"rink/f/members/a"):
        setting.other.txn((), (Put(key, b"{}"),))
    assert setting.run() == []


def test_group_watch_asks_for_the_list_once_the_watch_is_open(setting):
    """Else list and watch may be of two histories (R11)."""
    setting.group_watch.start()
    setting.calls.make()
    assert setting.calls.waiting == []  # nobody lists before it is known
    setting.put("a")
    setting.cluster.pump()
    assert len(setting.calls.waiting) == 1
    [listed, changed] = setting.run()  # what the watch brought meanwhile comes after the list
    assert isinstance(listed, Listed)
    assert changed.revision == listed.revision


def test_group_watch_behind_a_compaction_lists_anew_at_once(setting):
    setting.group_watch.start()
    setting.run()
    setting.etcd.cut()
    for _ in range(5):
        revision = setting.put()
    setting.cluster.compact(revision)
    setting.etcd.heal()
    [listed] = setting.run()
    assert listed.revision == revision


@pytest.mark.parametrize("has_seen", [True, False])
def test_group_watch_of_a_replaced_history_lists_anew(setting, has_seen):
    setting.group_watch.start()
    setting.put("before the list")
    setting.run()
    if has_seen:
        setting.put("after the list")
        setting.run()
    setting.cluster.replace_history()
    revision = setting.put("new")
    listed, *_ = setting.run()
    assert (listed.revision, [entry.name for entry in listed.entries]) == (revision, ["new"])


def reconnect(setting):
    setting.etcd.cut()
    setting.etcd.heal()
    return [type(event) for event in setting.run()]


def test_group_watch_reconnected_lists_anew_if_nothing_came_since_the_list(setting):
    """An event from before the list proves nothing about what came later."""
    setting.group_watch.start()
    setting.put("before the list")
    setting.run()
    assert reconnect(setting) == [Listed]
    setting.put("after the list")
    setting.run()
    assert reconnect(setting) == []


def test_group_watch_reconnected_lists_anew_behind_a_later_list_too(setting):
    setting.group_watch.start()
    setting.run()
    setting.etcd.cut()
    setting.etcd.heal()
    setting.cluster.pump()  # the watch is open again, and its list is not asked for yet
    setting.put("before the list")
    assert [type(event) for event in setting.run()] == [Listed, Changed]
    assert reconnect(setting) == [Listed]


@pytest.mark.parametrize("has_listed", [False, True])
def test_group_watch_reconnected_while_it_lists_lists_anew(setting, monkeypatch, has_listed):
    """The list may have more changes than the watch has delivered."""
    setting.group_watch.start()
    if has_listed:
        setting.run()
        setting.etcd.cut()
        setting.etcd.heal()
    else:
        setting.calls.make()
    setting.cluster.pump()
    setting.put("before the list")
    setting.cluster.pump()
    read, lists = setting.etcd.range, []

    def answers_and_breaks(*args):
        lists.append(read(*args))
        if len(lists) == 1:
            setting.etcd.cut()
            setting.etcd.heal()
            setting.cluster.pump()
        return lists[-1]

    monkeypatch.setattr(setting.etcd, "range", answers_and_breaks)
    assert [type(event) for event in setting.run()] == [Listed]
    assert len(lists) == 2


def test_group_watch_reconnected_behind_deletions_alone_lists_anew(setting):
    """A deletion that comes again says nothing but its key and revision."""
    setting.group_watch.start()
    setting.run()
    setting.put("key")
    setting.other.txn((), (Delete(KEYS.member("key")),))
    setting.run()
    assert reconnect(setting) == [Listed]


def test_group_watch_tells_no_changes_while_the_watch_is_unproven(setting):
    """Changes of a new history must not be applied to the old view."""
    setting.group_watch.start()
    setting.put("old")
    setting.run()
    setting.cluster.replace_history()
    setting.put("new")
    setting.cluster.pump()
    assert setting.events == []
    assert [type(event) for event in setting.run()] == [Listed, Changed]


def test_group_watch_carries_the_number_of_the_list_that_is_wanted(setting):
    setting.group_watch.start()
    [listed] = setting.run()
    setting.group_watch.list_anew(3)
    [wanted] = setting.run()
    setting.group_watch.restart_soon()
    setting.group_watch.start()
    [later] = setting.run()
    assert [listed.wanted, wanted.wanted, later.wanted] == [0, 3, 3]


def test_group_watch_that_pauses_lists_anew_after_the_pause(setting):
    """Two clusters that answer in turn must not cause a storm of lists."""
    setting.group_watch.start()
    setting.run()
    setting.group_watch.restart_soon()
    setting.group_watch.list_anew(1)
    assert setting.run() == []
    setting.group_watch.start()
    [listed] = setting.run()
    assert listed.wanted == 1


def test_group_watch_whose_watch_does_not_open_says_so(setting, monkeypatch):
    opened = setting.etcd.watch

    def never_opens(*arguments):
        watch = opened(*arguments)
        monkeypatch.setattr(watch, "wait_open", lambda seconds: False, raising=False)
        return watch

    monkeypatch.setattr(setting.etcd, "watch", never_opens)
    setting.group_watch.start()
    setting.calls.make()
    [failed] = setting.events
    assert isinstance(failed, ListFailed)
    assert "the watch of rink/g/ has not opened within 5 s" in str(failed.error)


def test_list_that_fails_after_the_next_has_begun_is_not_heard(setting, monkeypatch):
    """Another list counts by then, and the watch is well."""
    setting.group_watch.start()
    setting.calls.make()
    setting.cluster.pump()
    [overtaken] = setting.calls.waiting
    setting.calls.waiting.clear()
    setting.cluster.replace_history()
    setting.cluster.pump()

    def fails(*_):
        raise EtcdError("it took too long")

    with monkeypatch.context() as patch:
        patch.setattr(setting.etcd, "range", fails)
        overtaken()
    assert setting.events == []
    assert [type(event) for event in setting.run()] == [Listed]


def test_watch_that_cannot_be_opened_for_whatever_reason_is_tried_again(setting, monkeypatch):
    def fails(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(setting.etcd, "watch", fails)
    setting.group_watch.start()
    assert [type(event) for event in setting.run()] == [ListFailed]
    monkeypatch.undo()
    setting.group_watch.restart_soon()
    setting.group_watch.start()
    [listed] = setting.run()
    setting.put("b")
    [changed] = setting.run()
    assert (type(listed), type(changed)) == (Listed, Changed)


def test_list_that_fails_says_so_and_is_tried_again_after_a_while(setting):
    setting.etcd.cut()
    waits = []
    for _ in range(6):
        setting.group_watch.start()
        [failed] = setting.run()
        assert isinstance(failed, ListFailed)
        setting.group_watch.restart_soon()
        waits.append(setting.group_watch.wake_at - setting.time.now())
    assert waits[0] < 0.1
    assert waits[-1] > waits[0]
    setting.etcd.heal()
    setting.group_watch.start()
    [listed] = setting.run()
    assert isinstance(listed, Listed)
    setting.group_watch.restart_soon()
    assert setting.group_watch.wake_at - setting.time.now() < 0.1  # it counts from the beginning


def test_watch_that_breaks_says_so(setting):
    setting.group_watch.start()
    setting.run()
    setting.group_watch._hear(1, WatchBroken(EtcdError("why ever")))
    assert isinstance(setting.run()[0], ListFailed)


def restore_under(setting):
    """Restore etcd from a backup under a group watch that is up to date."""
    backup = setting.cluster.backup()
    setting.put()
    setting.group_watch.start()
    setting.run()
    setting.cluster.restore_backup(backup)


def test_another_history_is_told_from_the_watch_and_from_the_list(setting):
    restore_under(setting)
    assert [type(event) for event in setting.run()] == [HistoryChanged]
    setting.group_watch.start()
    assert [type(event) for event in setting.run()] == [HistoryChanged]
    setting.group_watch.history_told()
    setting.group_watch.start()
    assert [type(event) for event in setting.run()] == [Listed]


def test_history_that_another_call_found_changed_is_told_by_the_list(setting):
    """The watch was closed before: a lost session lists anew."""
    restore_under(setting)
    with pytest.raises(EtcdClusterChanged):  # as a keepalive does, which tells nobody
        setting.etcd.range(b"k")
    setting.group_watch.list_anew(1)
    assert [type(event) for event in setting.run()] == [HistoryChanged]
    setting.group_watch.history_told()
    setting.group_watch.start()
    assert [type(event) for event in setting.run()] == [Listed]


def test_what_an_earlier_round_still_delivers_is_not_heard(setting):
    setting.group_watch.start()
    setting.run()
    setting.group_watch.start()
    late = WatchEvents(99, ())
    setting.group_watch._hear(1, late)
    setting.group_watch._hear(1, WatchOpened())
    setting.group_watch._hear(1, WatchBroken(EtcdError("late")))
    assert setting.events == []
    assert [type(event) for event in setting.run()] == [Listed]
    assert len(setting.etcd.streams) == 1  # the first watch has been closed
    setting.group_watch._hear(1, late)
    assert setting.events == []


def test_list_that_was_overtaken_is_not_heard(setting):
    setting.group_watch.start()
    setting.group_watch.start()
    seen = setting.run()
    assert [type(event) for event in seen] == [Listed]
    assert len(setting.etcd.streams) == 1
    setting.etcd.cut()
    setting.group_watch.start()
    setting.group_watch.close()
    assert setting.run() == []


def test_close_ends_the_watch_also_one_that_is_being_opened(setting):
    setting.group_watch.start()
    opened = setting.etcd.watch

    def opens_late(*arguments):
        watch = opened(*arguments)
        setting.group_watch.close()
        return watch

    setting.etcd.watch = opens_late
    setting.run()
    setting.put()
    assert setting.run() == []
    assert setting.etcd.streams == []


def test_what_a_watch_brings_is_not_told_once_the_next_round_has_begun(setting):
    setting.group_watch.start()
    setting.calls.make()
    setting.put("b")
    setting.cluster.pump()
    setting.group_watch.restart_soon()
    assert setting.run() == []
    setting.group_watch.start()
    [listed] = setting.run()
    assert [entry.name for entry in listed.entries] == ["b"]


def test_what_is_decoded_while_the_next_round_begins_is_not_told(setting, monkeypatch):
    setting.group_watch.start()
    setting.run()
    told = []

    def decode(keys, kv):
        monkeypatch.undo()
        setting.group_watch.start()
        told.extend(setting.run())  # the next round has listed before this one is decoded
        return read_entry(keys, kv)

    monkeypatch.setattr(group_watch, "read_entry", decode)
    late = KeyChange(KeyValue(KEYS.member("a"), b"{}", 1, 99, 1, 0), False)
    setting.group_watch._hear(1, WatchEvents(99, (late,)))
    assert [type(event) for event in told] == [Listed]
    assert setting.events == []


def test_list_is_not_told_once_the_watch_has_opened_anew(setting):
    """The list was requested during an earlier call.

    So it may be of an earlier history.
    """
    setting.group_watch.start()
    setting.calls.make()
    setting.cluster.pump()
    [overtaken] = setting.calls.waiting
    setting.calls.waiting.clear()
    setting.cluster.replace_history()
    setting.put("new")
    setting.cluster.pump()
    overtaken()
    assert setting.events == []
    assert [type(event) for event in setting.run()] == [Listed, Changed]
