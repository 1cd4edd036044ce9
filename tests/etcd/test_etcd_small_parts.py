"""Check the order of endpoints, tokens, pauses, and encoded transactions."""

import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rink.backoff import Backoff
from rink.errors import ClosedError, ConfigError
from rink.etcd import connections
from rink.etcd.api import Compare, Delete, Get, Put, TxnTarget
from rink.etcd.auth_token import GivenTokens, UserTokens
from rink.etcd.channels import CountedChannel
from rink.etcd.client import Client
from rink.etcd.connections import Connection, Ring
from rink.etcd.etcd3_channels import borrow
from rink.etcd.messages import from_txn
from rink.etcd.methods import RANGE, WATCH
from rink.etcd.proto import rinketcd_pb2 as pb


@pytest.fixture
def ring():
    return Ring([Connection(name, lambda: None) for name in "abc"])


def names(ring):
    return "".join(connection.name for connection in ring.in_order())


def test_endpoint_that_worked_last_comes_first(ring):
    assert names(ring) == "abc"
    ring.worked(ring.in_order()[2])
    assert names(ring) == "cab"


def test_endpoint_that_takes_first_place_is_logged_for_debugging(ring, caplog):
    caplog.set_level(logging.DEBUG, "rink.etcd")
    ring.worked(ring.in_order()[2])
    ring.worked(ring.first)
    ring.failed(ring.first)
    assert [(one.levelno, one.getMessage()) for one in caplog.records] == [
        (logging.DEBUG, "etcd c answered, so it is tried first now"),
        (logging.DEBUG, "etcd c failed, so a is tried first now"),
    ]


def test_failing_endpoint_gives_way_to_the_next(ring):
    ring.failed(ring.first)
    assert names(ring) == "bca"


def test_endpoint_that_fails_while_another_is_first_changes_no_order(ring):
    a = ring.first
    ring.failed(a)
    ring.failed(a)
    assert names(ring) == "bca"


def test_connection_is_proven_from_an_answer_to_a_failure(ring):
    first = ring.first
    assert not first.is_proven
    ring.worked(first)
    assert first.is_proven
    ring.failed(first)
    assert not first.is_proven


def test_user_authenticates_once_for_all():
    asked = []

    def authenticate(request):
        asked.append(request.name)
        return f"token-{len(asked)}"

    tokens = UserTokens("u", "p")
    barrier, got = threading.Barrier(4), []

    def use():
        barrier.wait()
        got.append(tokens.get(authenticate, 5.0))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == ["token-1"] * 4
    tokens.refused("token-1")
    assert tokens.get(authenticate, 5.0) == "token-2"
    # Another thread's request was refused with the old one: the new one stays.
    tokens.refused("token-1")
    assert tokens.get(authenticate, 5.0) == "token-2"
    assert asked == ["u", "u"]


def test_nobody_waits_for_anothers_login_beyond_their_own_deadline():
    tokens = UserTokens("u", "p")

    def slowly(_):
        with pytest.raises(TimeoutError):
            ThreadPoolExecutor(1).submit(tokens.get, pytest.fail, 0.01).result()
        # Nor to say that a token was refused.
        tokens.refused("old")
        return "t"

    assert tokens.get(slowly, 5.0) == "t"


def test_failed_login_is_tried_again():
    tokens = UserTokens("u", "p")

    def fails(_):
        raise LookupError

    with pytest.raises(LookupError):
        tokens.get(fails, 5.0)
    assert tokens.get(lambda _: "t", 5.0) == "t"


def test_cluster_without_authentication_gets_no_token_until_it_wants_one():
    tokens = UserTokens("u", "p")
    assert tokens.get(lambda _: "", 5.0) is None
    assert tokens.get(lambda _: "not asked", 5.0) is None
    tokens.refused(None)
    assert tokens.get(lambda _: "t", 5.0) == "t"


def test_borrowed_token_is_read_for_each_request():
    class Theirs:
        channel = None
        metadata = None

    theirs = Theirs()
    connections, tokens = borrow(theirs)
    assert tokens.get(pytest.fail, 5.0) is None
    theirs.metadata = (("token", "t"),)
    assert tokens.get(pytest.fail, 5.0) == "t"
    assert len(connections) == 1
    assert not GivenTokens().can_refresh
    with pytest.raises(ConfigError):
        borrow(object())


def test_pauses_grow_to_their_bound_and_begin_anew():
    backoff = Backoff(first=0.1, longest=0.5)
    assert backoff.is_fresh
    pauses = [backoff.next() for _ in range(50)]
    assert not backoff.is_fresh
    assert 0 <= pauses[0] <= 0.2
    assert all(0 <= pause <= 0.5 for pause in pauses)
    assert max(pauses[3:]) > 0.2
    backoff.reset()
    assert backoff.is_fresh


def test_transaction_is_translated():
    request = from_txn(
        (
            Compare(b"a", TxnTarget.VERSION, 1),
            Compare(b"b", TxnTarget.CREATE, 2),
            Compare(b"c", TxnTarget.MOD, 3),
        ),
        (Put(b"p", b"v", 7), Get(b"g", b"h")),
        (Delete(b"d", b"e"),),
    )
    assert [one.target for one in request.compare] == [0, 1, 2]
    assert all(one.result == pb.Compare.EQUAL for one in request.compare)
    assert request.compare[0].version == 1
    assert request.compare[1].create_revision == 2
    assert request.compare[2].mod_revision == 3
    put, get = request.success
    assert (put.request_put.key, put.request_put.lease) == (b"p", 7)
    assert (get.request_range.key, get.request_range.range_end) == (b"g", b"h")
    assert request.failure[0].request_delete_range.range_end == b"e"


def test_compare_of_a_range_is_translated():
    compare = from_txn((Compare(b"a", TxnTarget.MOD, 3, b"b", is_below=True),), (), ()).compare[0]
    assert (compare.key, compare.range_end) == (b"a", b"b")
    assert compare.result == pb.Compare.LESS
    # By hand: LESS is 2 in field 1, and the range's end is field 64.
    assert compare.SerializeToString().startswith(b"\x08\x02")
    assert compare.SerializeToString().endswith(b"\x82\x04\x01b")


def test_comparison_with_zero_is_sent():
    """proto3 sends zeros only in a oneof, and etcd must see the number."""
    compare = from_txn((Compare(b"a", TxnTarget.CREATE, 0),), (), ()).compare[0]
    assert compare.WhichOneof("target_union") == "create_revision"


def test_bytes_are_etcds():
    """Field numbers by hand: key 1, range_end 2; event 11, kv 2, revision 3."""
    assert pb.RangeRequest(key=b"k", range_end=b"l").SerializeToString() == b"\x0a\x01k\x12\x01l"
    answer = pb.WatchResponse.FromString(b"\x5a\x07\x08\x01\x12\x03\x0a\x01k" + b"\x18\x01")
    assert answer.events[0].type == pb.Event.DELETE
    assert answer.events[0].kv.key == b"k"
    assert answer.created


class FakeChannel:
    """A gRPC channel that counts its ends, and does not end before it may."""

    def __init__(self, may_end=None):
        self.closed = 0
        self._may_end = may_end

    def close(self):
        if self._may_end:
            self._may_end.wait(60)
        self.closed += 1


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("kind", ["unary", "stream"])
def test_call_on_a_channel_closed_meanwhile_raises_closed_error(kind, is_closed):
    error = ValueError("Cannot invoke RPC on closed channel!")

    def refuse(*_, **__):
        raise error

    class Refusing:
        unary_unary = stream_stream = refuse

    channel = CountedChannel(Refusing())
    channel.is_closed = is_closed
    arguments = (RANGE, pb.RangeRequest(), 1.0, ()) if kind == "unary" else (WATCH, iter(()), ())
    with pytest.raises(ClosedError if is_closed else ValueError) as raised:
        getattr(channel, kind)(*arguments)
    assert (raised.value.__cause__ if is_closed else raised.value) is error


def connection_of(*channels):
    """A connection that opens one after the other."""
    waiting = list(channels)
    return Connection("http://a:1", lambda: waiting.pop(0))


def old(channel):
    """Let a counted channel be old enough to be dropped."""
    channel.made_at -= 2 * connections.MIN_CHANNEL_AGE_S


def test_channel_that_does_not_close_keeps_nobody(caplog, monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(connections, "_CLOSE_TIMEOUT_S", 0.1)
    stuck = Connection("http://stuck:1", lambda: FakeChannel(release))
    well = Connection("http://well:1", FakeChannel)
    with stuck.channel():
        pass
    Ring([stuck, well]).close()
    assert "etcd http://stuck:1: gRPC does not close the channel" in caplog.text
    assert "http://well:1" not in caplog.text
    release.set()
    for connection in (stuck, well):
        with pytest.raises(ClosedError), connection.channel():
            pass


def test_channels_are_closed_where_no_thread_can_begin_any_more(monkeypatch):
    def refuse(_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    first, second = FakeChannel(), FakeChannel()
    connection = connection_of(first, second)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with connection.channel() as channel:
        connection.drop(channel)
    with connection.channel():
        pass
    assert (first.closed, second.closed) == (0, 0)
    Ring([connection]).close()
    assert (first.closed, second.closed) == (1, 1)


def test_channel_that_failed_is_replaced_and_closed_after_its_last_call(monkeypatch):
    monkeypatch.setattr(threading.Thread, "start", lambda thread: thread.run())
    first, second = FakeChannel(), FakeChannel()
    connection = connection_of(first, second)
    with connection.channel() as one:
        old(one)
        with connection.channel() as same:
            assert same is one
            connection.failed(one, is_silent=False)
            with connection.channel() as other:
                assert other is not one
                # A second call that fails on the first channel says nothing of the second.
                connection.failed(one, is_silent=False)
        assert first.closed == 0
    assert first.closed == 1
    with connection.channel() as same:
        assert same is other
    connection.close()
    assert (first.closed, second.closed) == (1, 1)


def test_channel_that_is_new_or_connecting_is_kept():
    connection = connection_of(FakeChannel())
    with connection.channel() as channel:
        connection.failed(channel, is_silent=False)  # just made: gRPC connects again by itself
        old(channel)
        connection.failed(channel, is_silent=True)  # it may be slow to connect
        with connection.channel() as same:
            assert same is channel
        channel.answered()
        connection.failed(channel, is_silent=True)
        with pytest.raises(IndexError), connection.channel():
            pass


def test_closed_client_refuses_without_having_opened_anything():
    client = Client(["http://127.0.0.1:1"])
    client.close()
    client.close()
    for call in (
        lambda: client.range(b"k"),
        lambda: client.txn((), ()),
        lambda: client.watch(b"k", b"", 0, print),
        lambda: client.keepalives(print),
    ):
        with pytest.raises(ClosedError):
            call()
    assert client.calls == {}


def test_timeout_of_a_call_is_checked():
    with Client(["http://127.0.0.1:1"]) as client, pytest.raises(ConfigError, match="timeout"):
        client.range(b"k", timeout=-1.0)
