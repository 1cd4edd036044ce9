"""Test rules 1 to 3 of the client on one etcd.

See docs/internals/design/0002-etcd-client.md. The etcd is killed, frozen and compacted.
"""

import logging
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from etcd_support import Seen, eventually, put, put_until_done

from rink.errors import EtcdCompacted
from rink.etcd.api import Delete, Put, WatchEvents
from rink.testing import local_etcd

pytestmark = pytest.mark.waits


def test_rule_1_it_resumes_at_the_last_delivered_revision(node, clients, prefix):
    """A watch resumes at the last delivered revision.

    Writes go on through a SIGKILL and a restart. None is lost and none comes twice.
    """
    client, writer = clients(node.endpoint), clients(node.endpoint)
    key, seen = prefix.encode(), Seen()
    start = client.range(key).header.revision + 1
    client.watch(key, b"", start, seen.deliver)

    def write():
        return [put_until_done(writer, key, b"%d" % n) for n in range(300)]

    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(write)
        seen.wait_events(50)
        node.kill()
        time.sleep(0.3)
        node.start()
        answered = written.result()
    seen.wait(lambda s: s.revisions and s.revisions[-1] == answered[-1])
    assert seen.revisions == list(range(start, answered[-1] + 1))
    assert set(answered) <= set(seen.revisions)
    assert seen.openings == 1


def test_rule_1_the_created_header_does_not_count_where_a_start_was_asked(node, clients, prefix):
    """A resumed watch starts at its own revision, not at the header's.

    The node is killed in the middle of a long history. The header of the `created` answer was ahead
    of the events.
    """
    client = clients(node.endpoint)
    key, seen = prefix.encode(), Seen()
    start = client.range(key).header.revision + 1
    for n in range(3000):
        put(client, key, b"%d" % n)
    in_the_middle, go_on = threading.Event(), threading.Event()

    def slowly(item):
        seen.deliver(item)
        if not in_the_middle.is_set():
            in_the_middle.set()
            assert go_on.wait(60)

    client.watch(key, b"", start, slowly)
    assert in_the_middle.wait(60)
    assert len(seen.events) < 3000
    node.kill()
    node.start()
    go_on.set()
    seen.wait_events(3000)
    assert seen.values == [b"%d" % n for n in range(3000)]


def test_watch_restarted_with_nothing_delivered_opens_anew(node, clients, prefix):
    """Writes made while the connection was down are in the list that follows."""
    client, writer = clients(node.endpoint), clients(node.endpoint)
    key, seen = prefix.encode(), Seen()
    watch = client.watch(key, b"", 0, seen.deliver)
    assert watch.wait_open(10)
    node.kill()
    node.start()
    put_until_done(writer, key, b"perhaps before it")
    seen.wait(lambda s: s.openings == 2)
    put(writer, key, b"behind it")
    seen.wait(lambda s: s.values[-1:] == [b"behind it"])


@pytest.mark.parametrize(
    ("last", "openings"),
    [("a put", 1), ("both at once", 1), ("a deletion", 2), ("a lease's end", 2)],
)
def test_watch_restarted_proves_its_history_by_its_last_put(node, clients, prefix, last, openings):
    """The event comes again as it was; a deletion alone says too little."""
    client = clients(node.endpoint)
    first, other, seen = prefix.encode() + b"a", prefix.encode() + b"b", Seen()
    watch = client.watch(first, first + b"\xff", 0, seen.deliver)
    assert watch.wait_open(10)
    lease = client.grant(60).lease
    put(client, first, b"1", lease=lease)
    match last:
        case "a deletion":
            client.txn((), (Delete(first),))
        case "both at once":
            client.txn((), (Delete(first), Put(first + b"2", b"3")))
        case "a lease's end":
            client.revoke(lease)
    seen.wait_events({"a put": 1, "both at once": 3}.get(last, 2))
    node.kill()
    node.start()
    put_until_done(client, other, b"elsewhere")
    seen.wait(lambda s: s.openings == openings)  # what comes before a new list is in the list
    put_until_done(client, first, b"behind it")
    seen.wait(lambda s: s.values[-1:] == [b"behind it"])
    assert seen.openings == openings


def test_watch_of_an_etcd_without_its_volume_opens_anew(clients, prefix, tmp_path):
    """A watch of an etcd that lost its volume opens anew.

    The cluster id and the term are the same, and the revision is ahead. No header shows the loss.
    """
    key, seen = prefix.encode(), Seen()
    delivered, go_on = threading.Event(), threading.Event()

    def slowly(item):
        seen.deliver(item)
        if isinstance(item, WatchEvents) and not delivered.is_set():
            delivered.set()
            assert go_on.wait(60)  # it comes back when the new history is long enough

    with local_etcd(fsync=False, data_dir=tmp_path) as node:
        client = clients(node.endpoint)
        watch = client.watch(key, b"", 0, slowly)
        assert watch.wait_open(10)
        before = put(client, key, b"old")
        assert delivered.wait(60)
        node.stop()
        shutil.rmtree(next(tmp_path.glob("*/data")))
        node.start()
        writer = clients(node.endpoint)
        while put(writer, b"other") < before + 10:
            pass
        go_on.set()
        seen.wait(lambda s: s.openings == 2)
        put(writer, key, b"new")
        seen.wait(lambda s: s.values == [b"old", b"new"])
        assert seen.broken is None
        assert client.guard.epoch == 0
        client.close()


def test_watch_compacted_while_disconnected_opens_anew(node, clients, prefix):
    """A watch that was compacted while disconnected opens anew.

    The missed changes cannot be delivered any more. The caller is told so.
    """
    client, writer = clients(node.endpoint), clients(node.endpoint)
    key, seen = prefix.encode(), Seen()
    start = client.range(key).header.revision + 1
    put(writer, key, b"1")
    delivered, go_on = threading.Event(), threading.Event()

    def slowly(item):
        seen.deliver(item)
        if isinstance(item, WatchEvents):
            delivered.set()
            assert go_on.wait(60)

    client.watch(key, b"", start, slowly)
    assert delivered.wait(60)
    node.kill()
    node.start()
    for n in range(5):
        revision = put_until_done(writer, key, b"%d" % n)
    writer.compact(revision)
    go_on.set()
    seen.wait(lambda s: s.openings == 2)
    put(writer, key, b"later")
    seen.wait(lambda s: s.values[-1:] == [b"later"])
    assert seen.broken is None


def test_rule_3_watch_begun_behind_a_compaction_breaks(node, clients, prefix):
    client, key, seen = clients(node.endpoint), prefix.encode(), Seen()
    start = put(client, key, b"1")
    client.compact(put(client, key, b"2"))
    client.watch(key, b"", start, seen.deliver)
    assert isinstance(seen.wait_broken(), EtcdCompacted)
    assert repr(key) in str(seen.broken)


def test_no_revision_is_split_over_two_deliveries(node, clients, prefix):
    """No revision is split over two deliveries.

    The history has transactions of 40 keys each, and the watch lags far behind.
    """
    client = clients(node.endpoint)
    seen = Seen()
    first = prefix.encode()
    start = client.range(first).header.revision + 1
    keys = [first + b"%03d" % n for n in range(40)]
    for n in range(1100):
        value = b"%d" % n * 50
        client.txn((), tuple(Put(key, value) for key in keys))
    client.txn((), (Delete(first, first + b"\xff"),))
    client.watch(first, first + b"\xff", start, seen.deliver)
    seen.wait_events(1101 * 40)
    assert len(seen.items) > 1
    last = [item.events[-1].kv.mod_revision for item in seen.items]
    begin = [item.events[0].kv.mod_revision for item in seen.items]
    assert all(a < b for a, b in zip(last, begin[1:], strict=False))
    assert [item.revision for item in seen.items] == last


def test_delivery_that_raises_is_logged_and_ends_the_watch(node, clients, prefix, caplog):
    """A delivery that raises is logged and ends the watch.

    It is never skipped silently, since a caller that missed events must list again.
    """
    client, seen = clients(node.endpoint), Seen()

    def raising(item):
        seen.deliver(item)
        if len(seen.items) == 1:
            raise LookupError("a bug of the function's own")

    client.watch(prefix.encode(), b"", 0, raising)
    with caplog.at_level(logging.ERROR):
        eventually(lambda: put(client, prefix.encode()) and seen.items)
        assert isinstance(seen.wait_broken(), LookupError)
    assert "a bug of the function's own" in caplog.text


def test_close_waits_for_a_delivery_under_way(node, clients, prefix):
    """Closing a watch waits for a delivery under way.

    Nothing is delivered once `close()` has returned.
    """
    client = clients(node.endpoint)
    started, done = threading.Event(), []

    def slowly(_):
        started.set()
        time.sleep(0.3)
        done.append(time.monotonic())

    watch = client.watch(prefix.encode(), b"", 1, slowly)
    put(client, prefix.encode())
    assert started.wait(60)
    watch.close()
    assert done
    assert time.monotonic() >= done[0]


@pytest.mark.parametrize("frozen", [True, False])
def test_close_returns_while_the_server_is_frozen_or_gone(node, clients, prefix, frozen):
    """Closing needs nobody's answer."""
    client = clients(node.endpoint)
    watch = client.watch(prefix.encode(), b"", 1, lambda _: None)
    put(client, prefix.encode())
    node.freeze() if frozen else node.kill()
    begin = time.monotonic()
    watch.close()
    client.close()
    assert time.monotonic() - begin < 5.0


def test_watch_says_when_it_is_open(node, clients, prefix):
    """A watch reports when it is open.

    A write after that is delivered at once: etcd does not have to bring the watch up to date first.
    """
    client, key, seen = clients(node.endpoint), prefix.encode(), Seen()
    start = client.range(key).header.revision + 1
    watch = client.watch(key, b"", start, seen.deliver)
    assert watch.wait_open(10)
    put(client, key, b"v")
    seen.wait_events(1)


def test_waiting_for_a_watch_to_open_ends_where_it_cannot(node, clients):
    """Waiting for a watch to open ends if it cannot open.

    It ends in time if the server is frozen, and at once if the watch is closed.
    """
    client = clients(node.endpoint)
    client.range(b"k")
    node.freeze()
    watch = client.watch(b"k", b"", 1, lambda _: None)
    assert not watch.wait_open(0.2)
    closing = threading.Timer(0.1, watch.close)
    closing.start()
    assert watch.wait_open(10)
    closing.join()
    node.thaw()
