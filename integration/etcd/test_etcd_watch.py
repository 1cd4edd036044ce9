"""ETCD-CLIENT section 8, rules 1-3, on one etcd that is killed, frozen and compacted."""

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from etcd_support import ScriptedEtcd, Seen, eventually, header, put, put_until_done

from rink.errors import EtcdClusterChanged, EtcdCompacted
from rink.etcd.api import Delete, Put
from rink.etcd.proto import rinketcd_pb2 as pb


def test_rule_1_it_resumes_at_the_last_delivered_revision_plus_one(node, clients, prefix):
    """Writes go on through a SIGKILL and a restart: none is lost and none comes twice."""
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


def test_rule_1_the_created_header_does_not_count_where_a_start_was_asked(node, clients, prefix):
    """Killed in the middle of a long history: the `created` answer was ahead of the events."""
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
            assert go_on.wait(20)

    client.watch(key, b"", start, slowly)
    assert in_the_middle.wait(20)
    assert len(seen.events) < 3000
    node.kill()
    node.start()
    go_on.set()
    seen.wait_events(3000)
    assert seen.values == [b"%d" % n for n in range(3000)]


def test_rule_1_the_created_header_counts_where_no_start_was_asked(node, clients, prefix):
    """Events written while the connection is down belong to a watch that had begun."""
    client, writer = clients(node.endpoint), clients(node.endpoint)
    key, seen = prefix.encode(), Seen()
    put(writer, key, b"before")
    watch = client.watch(key, b"", 0, seen.deliver)
    eventually(lambda: watch._next > 0)
    node.kill()
    node.start()
    put_until_done(writer, key, b"after")
    assert seen.wait_events(1)[0].kv.value == b"after"


def test_rule_2_progress_answers_are_signs_of_life_only(clients):
    """A progress answer that overtakes events does not move the place to resume at."""

    def watch(request):
        if request.HasField("create_request"):
            yield pb.WatchResponse(header=header(9), created=True)
            kv = pb.KeyValue(key=b"k", mod_revision=5)
            yield pb.WatchResponse(header=header(9), events=[pb.Event(kv=kv)])
            # Events 6 to 9 are still on their way.
            yield pb.WatchResponse(header=header(9), watch_id=-1)
            raise RuntimeError("the stream breaks here")

    with ScriptedEtcd(watch=watch, range=lambda _: pb.RangeResponse(header=header(9))) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.watch(b"k", b"", 5, seen.deliver)
        eventually(lambda: len(etcd.seen["watch"]) >= 3)
        starts = [one.create_request.start_revision for one in etcd.seen["watch"]]
        client.close()
    assert starts[:3] == [5, 6, 6]
    assert seen.revisions == [5]


def test_rule_3_compacted_while_disconnected_breaks_the_watch(node, clients, prefix):
    """What happened meanwhile cannot be told any more, and is not passed over in silence."""
    client, writer = clients(node.endpoint), clients(node.endpoint)
    key, seen = prefix.encode(), Seen()
    start = client.range(key).header.revision + 1
    put(writer, key, b"1")
    delivered, go_on = threading.Event(), threading.Event()

    def slowly(item):
        seen.deliver(item)
        delivered.set()
        assert go_on.wait(20)

    client.watch(key, b"", start, slowly)
    assert delivered.wait(10)
    node.kill()
    node.start()
    for n in range(5):
        revision = put_until_done(writer, key, b"%d" % n)
    writer.compact(revision)
    go_on.set()
    assert isinstance(seen.wait_broken(), EtcdCompacted)
    assert repr(key) in str(seen.broken)
    put(writer, key, b"later")
    assert seen.values == [b"1"]


def test_no_revision_is_split_over_two_deliveries(node, clients, prefix):
    """A history of transactions of 40 keys each, read by a watch that lags far behind."""
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


def test_a_watch_says_which_cluster_it_lost(clients):
    """A node of another cluster behind the same endpoint ends the watch, and every other one."""
    cluster_id = [1]

    def watch(request):
        if request.HasField("create_request"):
            yield pb.WatchResponse(header=header(), created=True)
        else:
            yield pb.WatchResponse(header=header(cluster_id=cluster_id[0]), watch_id=-1)

    def ranged(_):
        return pb.RangeResponse(header=header(cluster_id=cluster_id[0]))

    with ScriptedEtcd(watch=watch, range=ranged) as etcd:
        client, seen, other = clients(etcd.endpoint), Seen(), Seen()
        client.watch(b"k", b"", 1, seen.deliver)
        client.watch(b"l", b"", 1, other.deliver)
        eventually(lambda: len(etcd.seen["watch"]) >= 2)
        cluster_id[0] = 2
        assert isinstance(seen.wait_broken(), EtcdClusterChanged)
        assert isinstance(other.wait_broken(), EtcdClusterChanged)
        # What begins afterwards speaks with the cluster as it now is.
        assert client.range(b"k").header.cluster_id == 2
        client.close()


def test_a_restored_backup_breaks_the_watch(clients):
    """The same cluster id at an older revision than was delivered."""
    revision = [7]

    def watch(request):
        if request.HasField("create_request"):
            yield pb.WatchResponse(header=header(7), created=True)
            kv = pb.KeyValue(key=b"k", mod_revision=7)
            yield pb.WatchResponse(header=header(7), events=[pb.Event(kv=kv)])
            revision[0] = 3
            raise RuntimeError("the restore")

    def ranged(_):
        return pb.RangeResponse(header=header(revision[0]))

    with ScriptedEtcd(watch=watch, range=ranged) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.watch(b"k", b"", 7, seen.deliver)
        assert isinstance(seen.wait_broken(), EtcdClusterChanged)
        assert "backup" in str(seen.broken)
        client.close()


def test_a_delivery_that_raises_is_logged_and_ends_the_watch(node, clients, prefix, caplog):
    """It is never skipped in silence: whoever missed events must list again."""
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
    """Nothing is delivered once close() has returned."""
    client = clients(node.endpoint)
    started, done = threading.Event(), []

    def slowly(_):
        started.set()
        time.sleep(0.3)
        done.append(time.monotonic())

    watch = client.watch(prefix.encode(), b"", 1, slowly)
    put(client, prefix.encode())
    assert started.wait(10)
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
    assert time.monotonic() - begin < 2.5


def test_a_split_revision_breaks_the_watch(clients):
    """It was never seen; if it came, half a revision would be delivered as if it were whole."""

    def watch(request):
        if request.HasField("create_request"):
            yield pb.WatchResponse(header=header(5), created=True)
            for key in (b"k", b"l"):
                kv = pb.KeyValue(key=key, mod_revision=5)
                yield pb.WatchResponse(header=header(5), events=[pb.Event(kv=kv)])

    ranged = pb.RangeResponse(header=header(5))
    with ScriptedEtcd(watch=watch, range=lambda _: ranged) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.watch(b"k", b"m", 5, seen.deliver)
        assert "split revision 5" in str(seen.wait_broken())
        client.close()


def test_events_repeated_after_a_resume_are_delivered_once(clients):
    """As older servers were seen to do."""

    def watch(request):
        if not request.HasField("create_request"):
            return
        yield pb.WatchResponse(header=header(6), created=True)
        resumed = request.create_request.start_revision > 5
        for revision in (5, 6) if resumed else (5,):
            kv = pb.KeyValue(key=b"k", mod_revision=revision)
            yield pb.WatchResponse(header=header(6), events=[pb.Event(kv=kv)])
        if not resumed:
            raise RuntimeError("the stream breaks here")

    ranged = pb.RangeResponse(header=header(6))
    with ScriptedEtcd(watch=watch, range=lambda _: ranged) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.watch(b"k", b"", 5, seen.deliver)
        assert [event.kv.mod_revision for event in seen.wait_events(2)] == [5, 6]
        client.close()
