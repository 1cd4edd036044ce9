"""Test rule 5 of the client (docs/internals/design/0002-etcd-client.md).

It is tested on a cluster of three: killed, frozen, without a quorum.
"""

import queue
import threading
import time

import grpc
import pytest
from etcd_support import Seen, eventually, put, put_until_done

import rink
from rink.errors import ClosedError, EtcdError, EtcdUnavailable
from rink.etcd import connections
from rink.etcd.api import Put
from rink.etcd.channels import OPTIONS
from rink.etcd.connections import OwnConnection
from rink.etcd.endpoints import read_endpoints
from rink.etcd.methods import WATCH
from rink.etcd.proto import rinketcd_pb2 as pb
from rink.etcd.tls import TlsSource
from rink.etcd.transport import metadata

pytestmark = pytest.mark.waits

BUSY_S = 3.0
"""For an election, for opening streams elsewhere, and for the tests beside this one."""


def first_is(cluster, node):
    """Return all endpoints, this node's in front."""
    return [node.endpoint, *(one.endpoint for one in cluster.nodes if one is not node)]


def node_of(cluster, client):
    """Return the node to which a client is connected."""
    return next(node for node in cluster.nodes if node.endpoint == client.endpoint)


def follower(cluster):
    leader = cluster.leader()
    return next(node for node in cluster.nodes if node is not leader)


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_rule_5_a_watch_moves_on_from_a_killed_node(cluster, clients, prefix, which):
    """A watch moves from a killed node to another one and misses nothing.

    No event is lost or doubled. If the leader died, the time includes the election.
    """
    victim = cluster.leader() if which == "leader" else follower(cluster)
    client, key, seen = clients(first_is(cluster, victim)), prefix.encode(), Seen()
    start = client.range(key).header.revision + 1
    client.watch(key, b"", start, seen.deliver)
    put(client, key, b"before")
    seen.wait_events(1)
    victim = node_of(cluster, client)  # a busy one may have been left
    victim.kill()
    killed_at = time.monotonic()
    put_until_done(client, key, b"after")
    seen.wait_events(2)
    assert seen.at[-1] - killed_at < 6
    print(f"{which} killed, first event after {seen.at[-1] - killed_at:.2f} s")
    assert client.endpoint != victim.endpoint
    assert seen.revisions == sorted(set(seen.revisions))


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_rule_5_a_frozen_node_is_left_within_seconds(cluster, clients, prefix, which):
    """Watch, keepalives and calls leave a frozen node within seconds.

    Its connections stay open and nothing answers. The keepalives notice the silence after a twelfth
    of the TTL, and the watch is then tried at once.
    """
    ttl = 24
    victim = cluster.leader() if which == "leader" else follower(cluster)
    other = next(node for node in cluster.nodes if node is not victim)
    writer, key, seen, renewed = clients(other.endpoint), prefix.encode(), Seen(), Seen()
    client = clients(first_is(cluster, victim))
    start = client.range(key).header.revision + 1
    client.watch(key, b"", start, seen.deliver)
    lease = client.grant(ttl).lease
    stream = client.keepalives(renewed.deliver)
    stream.send(lease)
    renewed.wait(lambda s: s.items)
    put(client, key, b"before")
    seen.wait_events(1)
    victim.freeze()
    frozen_at = time.monotonic()
    stream.send(lease)
    put_until_done(writer, key, b"after")
    seen.wait_events(2)
    renewed.wait(lambda s: len(s.items) == 2)
    took = {"watch": seen.at[-1] - frozen_at, "keepalive": renewed.at[-1] - frozen_at}
    print(f"{which} frozen: " + ", ".join(f"{k} after {v:.2f} s" for k, v in took.items()))
    assert max(took.values()) < ttl / 12 + 2 + BUSY_S
    assert client.calls["progress"] >= 1
    assert client.endpoint != victim.endpoint
    put_until_done(client, key, b"mine")
    victim.thaw()


def test_member_whose_ticker_failed_to_start_once_leaves_a_frozen_node(
    cluster, prefix, monkeypatch
):
    """A ticker thread that failed to start once is started again.

    This thread looks for silent servers, so the role is kept. gRPC's own pings notice after 7 s,
    which is too late for this TTL.
    """
    ttl, start, fails = 7, threading.Thread.start, ["rink-etcd-ticker"]

    def refuse_once(thread):
        if thread.name in fails:
            fails.remove(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    victim = follower(cluster)
    session = rink.Session(first_is(cluster, victim), ttl=ttl, prefix=prefix)
    with session:
        with pytest.raises(EtcdUnavailable, match="can't start new thread"):
            rink.Rink(session, "g").join()
        member = rink.Rink(session, "g", initial_delay=0.1).join()
        with member.await_role("x", timeout=20.0) as role:
            victim = node_of(cluster, session.etcd)  # a busy one may have been left
            victim.freeze()
            assert not role.lost.wait(1.5 * ttl)
            assert session.etcd.endpoint != victim.endpoint
            victim.thaw()


@pytest.mark.parametrize("which", ["leader", "follower"])
def test_question_about_no_lease_is_answered_and_tells_nothing(cluster, clients, which):
    """Ask for a sign of life as a stream does where another waited in vain."""
    node = cluster.leader() if which == "leader" else follower(cluster)
    client, renewed = clients(node.endpoint), Seen()
    # With a long lease, a stream that the machine keeps waiting asks for no other sign of life.
    stream, lease = client.keepalives(renewed.deliver), client.grant(600).lease
    stream.send(lease)
    renewed.wait(lambda s: s.items)
    stream._ask(time.monotonic())
    eventually(lambda: stream._unanswered.oldest_at is None)
    stream.send(lease)
    renewed.wait(lambda s: len(s.items) == 2)
    assert {one.ttl for one in renewed.items} == {600}
    assert client.calls["keepalive"] == 4  # the call itself counts, too
    assert "time_to_live" not in client.calls


@pytest.mark.deep
def test_watch_alone_on_a_frozen_node_leaves_within_12_s(cluster, clients, prefix, monkeypatch):
    """Ask after 10 s; gRPC's own pings, which are sooner, are switched off."""
    options = [one for one in OPTIONS if "keepalive" not in one[0] and "ping" not in one[0]]
    monkeypatch.setattr(connections, "OPTIONS", options)
    victim = follower(cluster)
    other = next(node for node in cluster.nodes if node is not victim)
    writer, key, seen = clients(other.endpoint), prefix.encode(), Seen()
    client = clients(first_is(cluster, victim))
    client.watch(key, b"", client.range(key).header.revision + 1, seen.deliver)
    put(client, key, b"before")
    seen.wait_events(1)
    victim.freeze()
    frozen_at = time.monotonic()
    put_until_done(writer, key, b"after")
    seen.wait_events(2, timeout=30.0)
    took = seen.at[-1] - frozen_at
    print(f"the watch alone on a frozen node: next event after {took:.2f} s")
    assert 10 < took < 12 + BUSY_S
    victim.thaw()


def test_rule_5_grpc_itself_notices_a_frozen_server(cluster):
    """Test gRPC's options of rule 5 without our guard against silence.

    Without `ping_timeout_ms` it takes a minute, without `keepalive_time_ms` for ever. A pause of
    the ticker's thread, or a stream that our guard does not look after, is what they are for.
    """
    victim = follower(cluster)
    [endpoint] = read_endpoints([victim.endpoint], tls=False)
    connection, requests = OwnConnection(endpoint, TlsSource(None, None, None)), queue.SimpleQueue()
    with connection.channel() as channel:
        answers = channel.stream(WATCH, iter(requests.get, None), metadata(None))
        requests.put(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"k")))
        assert next(iter(answers)).created
        victim.freeze()
        begin = time.monotonic()
        give_up = threading.Timer(15, answers.cancel)
        give_up.start()
        with pytest.raises(grpc.RpcError) as caught:
            next(iter(answers))
        took = time.monotonic() - begin
        give_up.cancel()
        give_up.join()
        requests.put(None)
    connection.close()
    victim.thaw()
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    print(f"gRPC noticed the frozen server after {took:.2f} s")
    assert took < 7 + 2 * BUSY_S  # 5 s until it asks, 2 s for the answer


def test_frozen_node_does_not_eat_the_deadline_of_a_read(cluster, clients):
    """A read with a frozen node in its endpoints ends within its deadline.

    Each endpoint gets its part of the timeout, even if no channel was open before.
    """
    victim = follower(cluster)
    victim.freeze()
    client = clients(first_is(cluster, victim), timeout=9.0)  # 3 s for each endpoint

    def seconds():
        begin = time.monotonic()
        client.range(b"k")
        return time.monotonic() - begin

    assert seconds() < 3 + BUSY_S
    assert min(seconds() for _ in range(3)) < 2.5  # the frozen one is not asked first any more
    victim.thaw()


def test_first_txn_does_not_go_to_a_frozen_node(cluster, clients):
    """A first txn is not sent to a frozen node.

    A connection that has not answered yet is tried with a read. So no outcome is in doubt.
    """
    victim = follower(cluster)
    victim.freeze()
    client = clients(first_is(cluster, victim), timeout=9.0)  # 3 s for each endpoint
    put(client, b"k", b"v")
    assert client.calls["txn"] == 1
    victim.thaw()


def test_txn_on_a_node_that_freezes_raises_and_the_next_goes_elsewhere(cluster, clients, prefix):
    """A txn on a node that freezes raises, and is not sent again.

    The node may apply it when it thaws, and only once. The next txn goes to another node.
    """
    victim, key, seen = follower(cluster), prefix.encode(), Seen()
    client = clients(first_is(cluster, victim))
    start = put(client, key, b"0")
    victim.freeze()
    begin = time.monotonic()
    with pytest.raises(EtcdUnavailable, match="may still be applied") as caught:
        put(client, key, b"1", timeout=1.0)
    assert 0.9 < time.monotonic() - begin < 4.5  # and not the client's timeout, 5 s
    assert victim.endpoint in str(caught.value)
    assert client.calls["txn"] == 2
    put_until_done(client, key, b"2")
    assert client.endpoint != victim.endpoint
    victim.thaw()
    eventually(lambda: victim.is_healthy)
    put_until_done(client, key, b"3")
    client.watch(key, b"", start, seen.deliver)
    seen.wait(lambda s: b"3" in s.values)
    assert seen.values.count(b"1") <= 1


def test_without_a_quorum_calls_end_in_time_and_streams_move_on(cluster, clients, prefix):
    """Without a quorum, calls end in time and streams move on.

    Two of three nodes are frozen. The third answers only that it has no quorum. When the nodes
    thaw, everything goes on.
    """
    leader = cluster.leader()
    alive = next(node for node in cluster.nodes if node is not leader)
    frozen = [node for node in cluster.nodes if node is not alive]
    client, key, seen = clients(first_is(cluster, alive)), prefix.encode(), Seen()
    client.watch(key, b"", client.range(key).header.revision + 1, seen.deliver)
    put(client, key, b"before")
    seen.wait_events(1)
    for node in frozen:
        node.freeze()
    for call in (lambda: client.range(key, timeout=1.0), lambda: client.grant(5, timeout=1.0)):
        begin = time.monotonic()
        with pytest.raises(EtcdUnavailable):
            call()
        assert time.monotonic() - begin < 1.0 + BUSY_S  # and not the client's timeout, 5 s
    for node in frozen:
        node.thaw()
    put_until_done(client, key, b"after")
    seen.wait(lambda s: b"after" in s.values)


def test_member_without_a_leader_breaks_the_watch(cluster, clients):
    """A watch on a member without a leader breaks.

    `hasleader` causes it. Otherwise the watch would be silent for ever, although the member answers
    progress requests itself.
    """
    leader = cluster.leader()
    alive = next(node for node in cluster.nodes if node is not leader)
    client = clients(alive.endpoint)
    watch = client.watch(b"k", b"", 1, lambda _: None)
    assert watch.wait_open(10)
    call = watch._call
    frozen = [node for node in cluster.nodes if node is not alive]
    for node in frozen:
        node.freeze()
    begin = time.monotonic()
    eventually(lambda: watch._call is not call)
    print(f"no leader noticed after {time.monotonic() - begin:.2f} s")
    for node in frozen:
        node.thaw()


def test_unreachable_endpoints_end_within_the_timeout(clients):
    """The message names each endpoint and what it said."""
    client = clients(["http://127.0.0.1:1", "http://127.0.0.1:2"], timeout=2.5)
    for call in (lambda: client.range(b"k"), lambda: put(client, b"k"), lambda: client.grant(5)):
        begin = time.monotonic()
        with pytest.raises(EtcdUnavailable) as caught:
            call()
        assert time.monotonic() - begin < 4.9  # and not 5 s, as without a timeout
        assert "http://127.0.0.1:1: " in str(caught.value)
        assert "http://127.0.0.1:2: " in str(caught.value)
        assert set(caught.value.endpoints) == {"http://127.0.0.1:1", "http://127.0.0.1:2"}
    assert "txn" not in client.calls


def test_dead_endpoint_in_front_costs_nothing_worth_mention(cluster, clients):
    """A refused connection is known at once, for a transaction too."""
    client = clients(["http://127.0.0.1:1", *cluster.endpoints], timeout=60.0)  # 15 s for each
    begin = time.monotonic()
    put(client, b"k", b"v")
    assert time.monotonic() - begin < 10.0
    assert client.calls["txn"] == 1


def test_refusal_is_no_silence(cluster, clients):
    """etcd's "no" is told as it is, at once, with the key."""
    client = clients(cluster.endpoints, timeout=60.0)
    begin = time.monotonic()
    with pytest.raises(EtcdError, match=r"lease not found") as caught:
        client.txn((), (Put(b"some-key", b"", lease=0x777),))
    assert "some-key" in str(caught.value)
    with pytest.raises(EtcdError, match=r"too large"):
        put(client, b"k", b"x" * 2_000_000)
    assert time.monotonic() - begin < 10.0


def test_call_under_way_ends_when_the_client_is_closed(cluster, clients):
    """A call under way ends when the client is closed.

    No thread is left waiting for a frozen server.
    """
    victim = follower(cluster)
    client = clients(victim.endpoint, timeout=20.0)
    client.range(b"k")
    victim.freeze()
    raised = []

    def wait():
        try:
            client.range(b"k")
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    eventually(lambda: client.calls["range"] == 2)
    time.sleep(0.1)
    client.close()
    thread.join(5)
    victim.thaw()
    assert isinstance(raised[0], ClosedError)
