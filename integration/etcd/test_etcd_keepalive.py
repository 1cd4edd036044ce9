"""Test rule 4 of the client (docs/internals/design/0002-etcd-client.md).

One stream serves all leases, and deadlines count from the time of sending.
"""

import threading
import time

import pytest
from etcd_support import Seen, eventually, put_until_done

from rink.etcd.client import Client, boot_clock

pytestmark = pytest.mark.waits


def test_rule_4_ttl_0_means_that_the_lease_is_gone(node, clients):
    """A revoked lease, and one that never was."""
    client, seen = clients(node.endpoint), Seen()
    lease = client.grant(10).lease
    stream = client.keepalives(seen.deliver)
    stream.send(lease)
    seen.wait(lambda s: len(s.items) == 1)
    client.revoke(lease)
    stream.send(lease)
    stream.send(0x1234567)
    seen.wait(lambda s: len(s.items) == 3)
    assert [(one.lease, one.ttl) for one in seen.items] == [(lease, 10), (lease, 0), (0x1234567, 0)]


def test_rule_4_the_deadline_counts_from_the_time_of_sending(node, clients):
    """The deadline of a keepalive counts from the time of sending.

    The caller's clock is read before etcd can have seen the request.
    """
    client, seen = clients(node.endpoint), Seen()
    lease = client.grant(10).lease
    stream = client.keepalives(seen.deliver)
    around = []
    for count in range(1, 21):
        before = boot_clock()
        stream.send(lease)
        around.append((before, boot_clock()))
        seen.wait(lambda s, count=count: len(s.items) == count)
    for item, (before, after) in zip(seen.items[1:], around[1:], strict=True):
        assert before <= item.sent_at <= after


def test_rule_4_one_stream_carries_many_leases(node, clients):
    """300 leases, each answered once, on one call."""
    of_others = set(threading.enumerate())
    client, seen = clients(node.endpoint), Seen()
    # With long leases, a slow machine does not make a stream look silent.
    leases = [client.grant(600 + n % 7) for n in range(300)]
    stream = client.keepalives(seen.deliver)
    for one in leases:
        stream.send(one.lease)
    seen.wait(lambda s: len(s.items) == 300)
    assert [one.lease for one in seen.items] == [one.lease for one in leases]
    assert [one.ttl for one in seen.items] == [one.ttl for one in leases]
    assert client.calls["keepalive"] == 1 + 300
    new = set(threading.enumerate()) - of_others
    assert [thread.name for thread in new].count("rink-etcd-keepalive") == 1


def test_what_is_asked_while_the_server_is_down_is_sent_once_it_is_back(node, clients):
    """A renewal while the server is down is sent once it is back.

    One request per lease waits, and keeps its time of asking.
    """
    client, seen = clients(node.endpoint), Seen()
    lease = client.grant(30).lease
    stream = client.keepalives(seen.deliver)
    stream.send(lease)
    seen.wait(lambda s: len(s.items) == 1)
    node.kill()
    eventually(lambda: stream._requests is None)
    for _ in range(1000):
        stream.send(lease)
    asked_by = boot_clock()
    node.start()
    seen.wait(lambda s: len(s.items) == 2)
    assert (seen.items[1].lease, seen.items[1].ttl) == (lease, 30)
    assert seen.items[1].sent_at <= asked_by
    stream.send(lease)
    seen.wait(lambda s: len(s.items) == 3)
    assert stream._unanswered.oldest_at is None


def test_send_never_blocks(node):
    """`send` blocks neither on a frozen server nor before the first stream."""
    with Client([node.endpoint]) as client:
        lease = client.grant(60).lease
        stream = client.keepalives(lambda _: None)
        node.freeze()
        begin = time.monotonic()
        for _ in range(1000):
            stream.send(lease)
        assert time.monotonic() - begin < 10.0
        node.thaw()
        put_until_done(client, b"awake", b"")
