"""Check that a failed start of a thread is tried again."""

import threading
import types

import grpc
import pytest
from etcd_scripted import ScriptedEtcd, Seen, header

from rink.errors import EtcdUnavailable
from rink.etcd.client import Client
from rink.etcd.proto import rinketcd_pb2 as pb

GRPC = "rink-etcd-watch starts Thread-"
"""The threads without a name of ours: for a stream on a new channel one reads, and one sends."""


@pytest.fixture
def starts(monkeypatch):
    """Map "one thread starts another" to whether the next start fails."""
    fails, start = {}, threading.Thread.start

    def refuse(thread):
        what = f"{threading.current_thread().name} starts {thread.name}"
        for words, of_next in fails.items():
            if words in what and of_next and of_next.pop(0):
                raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return fails


def watch(request):
    """Create a watch, with one event at once; answer what else it is asked."""
    yield pb.WatchResponse(header=header(7), created=request.HasField("create_request"))
    if request.HasField("create_request"):
        kv = pb.KeyValue(key=b"k", mod_revision=7)
        yield pb.WatchResponse(header=header(7), events=[pb.Event(kv=kv)])


def keepalive(request):
    yield pb.LeaseKeepAliveResponse(header=header(7), ID=request.ID, TTL=60)


@pytest.fixture
def etcd():
    with ScriptedEtcd(
        watch=watch, keepalive=keepalive, range=lambda _: pb.RangeResponse(header=header(7))
    ) as made:
        yield made


@pytest.mark.parametrize("thread", ["rink-etcd-ticker", "rink-etcd-watch"])
def test_stream_whose_thread_fails_to_start_leaves_nothing_behind(etcd, clients, starts, thread):
    client, seen = clients(etcd.endpoint), Seen()
    starts[thread] = [True]
    with pytest.raises(EtcdUnavailable, match="can't start new thread"):
        client.watch(b"k", b"", 7, seen.deliver)
    assert not client._streams._running()
    client.watch(b"k", b"", 7, seen.deliver)
    assert seen.wait_events(1)
    assert client._streams._ticker.is_alive()
    assert len(etcd.metadata["watch"]) == 1


@pytest.mark.parametrize("which", [[True], [False, True]])
def test_channel_that_got_no_thread_is_replaced(etcd, clients, starts, which):
    """gRPC counts a call before it starts the reading thread, and never again."""
    client, seen, renewed = clients(etcd.endpoint), Seen(), Seen()
    starts[GRPC] = which
    client.watch(b"k", b"", 7, seen.deliver)
    assert seen.wait_events(1)
    assert seen.broken is None
    client.keepalives(renewed.deliver).send(1)
    renewed.wait(lambda s: s.items)
    assert starts == {GRPC: []}


def test_borrowed_channel_that_got_no_thread_is_warned_of_and_left(etcd, starts, caplog):
    """Only the application can make a new channel, and Rink uses it at once."""
    seen, target = Seen(), etcd.endpoint.removeprefix("http://")
    old = grpc.insecure_channel(target)  # never closed, since that would wait for ever
    with grpc.insecure_channel(target) as new:
        theirs = types.SimpleNamespace(channel=old, metadata=None)
        starts[GRPC] = [True]
        with Client.from_etcd3(theirs, timeout=20.0) as client:
            client.range(b"k")  # over the old one
            theirs.channel = new
            client.watch(b"k", b"", 7, seen.deliver)
            assert seen.wait_events(1)
    assert starts == {GRPC: []}
    assert "Only your application can make a new channel" in caplog.text


def test_stream_without_threads_sends_nothing(etcd, clients, starts):
    """Each try would cost a channel that gRPC cannot close any more."""
    client, renewed = clients(etcd.endpoint), Seen()
    starts["probe"] = [True, True, True]
    client.keepalives(renewed.deliver).send(1)
    renewed.wait(lambda s: s.items)
    assert starts == {"probe": []}
    assert (client.calls["range"], client.calls["keepalive"]) == (1, 2)
