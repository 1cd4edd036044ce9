"""Test the watches and keepalive streams of every `rink.etcd.api.Etcd`.

The module is collected as `etcd_contract` is.
"""

from __future__ import annotations

import queue

import pytest
from etcd_contract import UNKNOWN_LEASE
from etcd_world import MESSAGE_TIMEOUT_S, Seen, short

from rink.errors import ClosedError, EtcdCompacted
from rink.etcd.api import Delete, KeyChange, KeyValue, Put, WatchEvents, WatchOpened

# --------------------------------------------------------------------------- keepalives


def test_keepalives_are_answered_in_order_each_with_its_own_sending_time(world):
    leases = [world.etcd.grant(ttl).lease for ttl in (10, 20, 30)]
    seen = Seen()
    stream = world.etcd.keepalives(seen.deliver)
    stream.send(leases[0])
    (first,) = seen.answers(1)  # the stream is open now; an earlier request may be lost
    order = [leases[2], leases[0], UNKNOWN_LEASE, leases[1], leases[1]]
    for lease in order:
        stream.send(lease)
    answers = seen.answers(5)
    assert [answer.lease for answer in answers] == order
    assert [answer.ttl for answer in answers] == [30, 10, 0, 20, 20]
    times = [answer.sent_at for answer in (first, *answers)]
    assert times == sorted(times)
    stream.close()


def test_keepalive_begins_the_lease_anew(world):
    lease = world.etcd.grant(6).lease
    world.put("a", lease=lease)
    seen = Seen()
    stream = world.etcd.keepalives(seen.deliver)
    for _ in range(3):
        world.pass_time(2.5)  # the machine may stall for 3 s, and three times are more than 6 s
        stream.send(lease)
        (answer,) = seen.answers(1)
        assert (answer.lease, answer.ttl) == (lease, 6)
    assert world.names() == ["a"]
    stream.close()


def test_keepalive_of_a_revoked_lease_is_answered_with_zero(world):
    lease = world.etcd.grant(30).lease
    world.etcd.revoke(lease)
    seen = Seen()
    stream = world.etcd.keepalives(seen.deliver)
    stream.send(lease)
    (answer,) = seen.answers(1)
    assert (answer.lease, answer.ttl) == (lease, 0)
    stream.close()


def test_closed_stream_takes_requests_and_answers_none(world):
    lease = world.etcd.grant(30).lease
    seen = Seen()
    stream = world.etcd.keepalives(seen.deliver)
    stream.close()
    stream.close()
    stream.send(lease)
    assert seen.queue.empty()


# --------------------------------------------------------------------------- watches


def test_watch_replays_history_and_then_follows(world):
    start = world.put("a", b"1")
    world.put("b", b"2")
    world.etcd.txn((), (Delete(world.key("a")),))
    seen = Seen()
    watch = world.etcd.watch(world.prefix, world.end, start, seen.deliver)
    replayed = seen.events_until(start + 2)
    world.other.txn((), (Put(world.key("c"), b"3"), Put(world.key("a"), b"4")))
    live = seen.events_until(start + 3)
    assert short(replayed, world) == [("a", b"1"), ("b", b"2"), ("a", None)]
    assert short(live, world) == [("c", b"3"), ("a", b"4")]
    watch.close()


def test_events_carry_the_key_as_it_was_then(world):
    lease = world.etcd.grant(30).lease
    start = world.put("a", b"1", lease)
    world.put("a", b"2")
    world.etcd.txn((), (Delete(world.key("a")),))
    seen = Seen()
    watch = world.etcd.watch(world.key("a"), b"", start, seen.deliver)
    a = world.key("a")
    assert seen.events_until(start + 2) == [
        KeyChange(KeyValue(a, b"1", start, start, 1, lease), deleted=False),
        KeyChange(KeyValue(a, b"2", start, start + 1, 2, 0), deleted=False),
        KeyChange(KeyValue(a, b"", 0, start + 2, 0, 0), deleted=True),
    ]
    watch.close()


def test_watch_delivers_only_its_range(world):
    start = world.put("a", b"1")
    world.put("b", b"2")
    world.etcd.txn((), (Put(world.key("a/1"), b"3"), Put(world.key("b"), b"4")))
    end = world.put("a", b"5")
    one, several = Seen(), Seen()
    watches = [
        world.etcd.watch(world.key("a"), b"", start, one.deliver),
        world.etcd.watch(world.key("a"), world.key("b"), start, several.deliver),
    ]
    assert short(one.events_until(end), world) == [("a", b"1"), ("a", b"5")]
    assert short(several.events_until(end), world) == [("a", b"1"), ("a/1", b"3"), ("a", b"5")]
    for watch in watches:
        watch.close()


def test_watch_may_begin_in_the_future(world):
    now = world.revision()
    seen = Seen()
    watch = world.etcd.watch(world.prefix, world.end, now + 3, seen.deliver)
    for name in ("a", "b", "c", "d"):
        world.put(name)
    assert short(seen.events_until(now + 4), world) == [("c", b""), ("d", b"")]
    watch.close()


def test_long_history_arrives_whole(world):
    value = bytes(10_000)
    start = world.revision() + 1
    for i in range(60):
        world.etcd.txn((), tuple(Put(world.key(f"{j:02}"), value) for j in range(i % 7 + 1)))
    seen = Seen()
    watch = world.etcd.watch(world.prefix, world.end, start, seen.deliver)
    events = seen.events_until(start + 59)
    assert [(e.kv.mod_revision, e.kv.key) for e in events] == [
        (start + i, world.key(f"{j:02}")) for i in range(60) for j in range(i % 7 + 1)
    ]
    watch.close()


def test_compacted_start_breaks_the_watch(world):
    start = world.put("a")
    world.put("a")
    world.compact(world.put("a"))
    seen = Seen()
    watch = world.etcd.watch(world.prefix, world.end, start, seen.deliver)
    seen.breaks_with(EtcdCompacted, world, watch)


def test_compaction_keeps_keys_and_running_watches(world):
    start = world.put("a", b"1")
    seen = Seen()
    watch = world.etcd.watch(world.key("a"), b"", start, seen.deliver)
    seen.events_until(start)
    for _ in range(3):
        world.put("b")
    world.compact(world.put("b"))
    end = world.put("a", b"2")
    assert short(seen.events_until(end), world) == [("a", b"2")]
    assert world.names() == ["a", "b"]
    watch.close()


def test_watch_from_behind_a_compaction_follows(world):
    world.put("a")
    at = world.put("b")
    world.compact(at)
    end = world.put("c")
    seen = Seen()
    watch = world.etcd.watch(world.prefix, world.end, at + 1, seen.deliver)
    assert short(seen.events_until(end), world) == [("c", b"")]
    watch.close()


def test_closed_watch_delivers_nothing_more(world):
    start = world.put("a")
    seen = Seen()
    closed = world.etcd.watch(world.prefix, world.end, start, seen.deliver)
    seen.events_until(start)
    closed.close()
    closed.close()
    other = Seen()
    watch = world.etcd.watch(world.prefix, world.end, start, other.deliver)
    other.events_until(world.put("b"))
    assert seen.queue.empty()
    watch.close()


def test_watch_delivers_its_opening_before_events(world):
    start = world.put("a")
    order = queue.SimpleQueue()
    watch = world.etcd.watch(
        world.prefix, world.end, start, lambda message: order.put(type(message))
    )
    assert watch.wait_open(MESSAGE_TIMEOUT_S)
    assert order.get(timeout=MESSAGE_TIMEOUT_S) is WatchOpened
    assert order.get(timeout=MESSAGE_TIMEOUT_S) is WatchEvents
    watch.close()


def test_watch_may_be_closed_from_within_its_delivery(world):
    start = world.put("a")
    seen = Seen()

    def deliver(message):
        if isinstance(message, WatchEvents):
            watches.get().close()
        seen.deliver(message)

    watches = queue.SimpleQueue()
    watches.put(world.etcd.watch(world.prefix, world.end, start, deliver))
    seen.events_until(start)


def test_watch_whose_delivery_raises_ends_with_that_error(world):
    start = world.put("a")
    seen = Seen()

    def deliver(message):
        seen.deliver(message)
        if isinstance(message, WatchEvents):
            raise ZeroDivisionError

    watch = world.etcd.watch(world.prefix, world.end, start, deliver)
    seen.events_until(start)
    seen.breaks_with(ZeroDivisionError, world, watch)


def test_keepalive_stream_outlives_a_delivery_that_raises(world):
    lease = world.etcd.grant(30).lease
    seen = Seen()

    def deliver(answer):
        seen.deliver(answer)
        raise ZeroDivisionError

    stream = world.etcd.keepalives(deliver)
    for _ in range(2):
        stream.send(lease)
        seen.answers(1)
    stream.close()


def test_closed_client_refuses_calls_and_delivers_nothing(world):
    start = world.put("a")
    seen = Seen()
    world.other.watch(world.prefix, world.end, start, seen.deliver)
    seen.events_until(start)
    stream = world.other.keepalives(seen.deliver)
    world.other.close()
    world.other.close()
    for call in (
        lambda: world.other.range(world.key("a")),
        lambda: world.other.txn((), ()),
        lambda: world.other.grant(30),
        lambda: world.other.watch(world.prefix, world.end, start, seen.deliver),
        lambda: world.other.keepalives(seen.deliver),
        lambda: stream.send(UNKNOWN_LEASE),
    ):
        with pytest.raises(ClosedError):
            call()
    end = world.put("a")
    mine = Seen()
    watch = world.etcd.watch(world.prefix, world.end, start, mine.deliver)
    mine.events_until(end)
    assert seen.queue.empty()
    watch.close()
