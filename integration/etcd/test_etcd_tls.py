"""Test TLS, client certificates, and their failures.

Each failure must raise a clear error in time.
"""

import contextlib
import datetime as dt
import time

import pytest
from etcd_support import Seen, put, put_until_done
from pems import Files

import rink
from rink.errors import ConfigError, EtcdTls, EtcdUnavailable
from rink.testing import local_etcd

pytestmark = pytest.mark.waits

MEMBER_TTL_S = 10


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("tls") / "right", "127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("tls") / "wrong", "127.0.0.1", "localhost")


@pytest.fixture(scope="module")
def https(files):
    with local_etcd(fsync=False, tls=files.server()) as node:
        yield node


@pytest.fixture(scope="module")
def mutual(files):
    with local_etcd(fsync=False, tls=files.server(client_cert_auth=True)) as node:
        yield node


def uses(client, prefix):
    """Assert that all calls work over the connection."""
    seen, renewed, key = Seen(), Seen(), prefix.encode()
    revision = put(client, key, b"v")
    client.watch(key, b"", revision, seen.deliver)
    assert seen.wait_events(1)[0].kv.value == b"v"
    client.keepalives(renewed.deliver).send(client.grant(10).lease)
    renewed.wait(lambda s: s.items)


def refused(client, match):
    """Assert that EtcdTls is raised in time."""
    begin = time.monotonic()
    with pytest.raises(EtcdTls, match=match) as caught:
        client.range(b"k")
    assert caught.value.endpoints
    with pytest.raises(EtcdTls, match=match):
        put(client, b"k")
    assert time.monotonic() - begin < 12.0, "long before the timeout"


def test_tls(https, files, clients, prefix):
    uses(clients(https.endpoint, ca=files.ca), prefix)


def test_tls_with_the_texts_themselves(https, files, clients, prefix):
    uses(clients(https.endpoint, ca=files.ca.read_bytes()), prefix)


def test_endpoint_without_a_scheme_is_https_where_a_ca_is_given(https, files, clients):
    clients(https.endpoint.removeprefix("https://"), ca=str(files.ca)).range(b"k")


def test_mutual_tls(mutual, files, clients, prefix):
    uses(clients(mutual.endpoint, ca=files.ca, cert=files.cert, key=files.key), prefix)


def test_mutual_tls_with_the_texts_themselves(mutual, files, clients):
    texts = {n: getattr(files, n).read_bytes() for n in ("ca", "cert", "key")}
    clients(mutual.endpoint, **texts).range(b"k")


def test_wrong_ca(https, others, clients):
    refused(clients(https.endpoint, ca=others.ca, timeout=15.0), r"certificate .* refused.*ca=")


def test_no_ca(https, clients):
    refused(clients(https.endpoint, timeout=15.0), "certificate .* refused")


def test_no_client_certificate(mutual, files, clients):
    refused(clients(mutual.endpoint, ca=files.ca, timeout=15.0), "cert= and key=")


def test_client_certificate_of_another_ca(mutual, files, others, clients):
    client = clients(mutual.endpoint, ca=files.ca, cert=others.cert, key=others.key, timeout=15.0)
    refused(client, "client certificate")


def test_host_that_the_certificate_does_not_name(tmp_path, clients):
    named_else = Files(tmp_path / "else", "etcd.example", "127.0.0.1")
    with local_etcd(fsync=False, tls=named_else.server()) as node:
        endpoint = node.endpoint.replace("127.0.0.1", "localhost")
        settings = {"cert": named_else.cert, "key": named_else.key}
        client = clients(endpoint, ca=named_else.ca, timeout=15.0, **settings)
        refused(client, "localhost.*names this host")


def test_http_to_a_server_that_speaks_tls(https, clients):
    refused(clients(https.endpoint.replace("https", "http"), timeout=15.0), "use https")


def test_https_to_a_server_that_does_not(one_node, files, clients):
    endpoint = one_node.endpoint.replace("http", "https")
    refused(clients(endpoint, ca=files.ca, timeout=15.0), "use http")


def test_unreachable_https_endpoint_is_not_called_a_tls_fault(files, clients):
    with pytest.raises(EtcdUnavailable, match="refused"):
        # Within a second, a busy machine may not even hear of the refusal.
        clients("https://127.0.0.1:1", ca=files.ca, timeout=5.0).range(b"k")


def test_key_of_another_certificate(https, files, others, clients):
    with pytest.raises(ConfigError, match="belong together"):
        clients(https.endpoint, ca=files.ca, cert=files.cert, key=others.key)


def renews(client):
    """Open a keepalive stream; return a function that times a renewal."""
    renewed = Seen()
    stream, lease = client.keepalives(renewed.deliver), client.grant(60).lease

    def renew():
        begin, count = time.monotonic(), len(renewed.items)
        stream.send(lease)
        renewed.wait(lambda s: len(s.items) > count)
        return time.monotonic() - begin

    return renew


@contextlib.contextmanager
def holding_a_role(endpoint, prefix, **tls):
    """Join a group, and hold a role of it."""
    session = rink.Session(endpoint, ttl=MEMBER_TTL_S, prefix=prefix, **tls)
    member = rink.Rink(session, "g", initial_delay=0.1)
    with session, member, member.await_role("x", timeout=60.0) as role:
        yield role


def test_client_certificate_rotated_on_disk_is_used_when_etcd_is_back(tmp_path, clients, prefix):
    """A client certificate rotated on disk is used when etcd is back.

    The old certificate has expired by then, as with certificates that live for hours.
    """
    servers, ours = Files(tmp_path / "servers", "127.0.0.1"), Files(tmp_path / "ours", "app")
    ours.authority = servers.authority
    with local_etcd(fsync=False, tls=servers.server(client_cert_auth=True)) as node:
        over_at = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=15)
        ours.issue(not_after=over_at)
        tls = {"ca": servers.ca, "cert": ours.cert, "key": ours.key}
        client = clients(node.endpoint, **tls)
        key, seen, renew = prefix.encode(), Seen(), renews(client)
        client.watch(key, b"", client.range(key).header.revision + 1, seen.deliver)
        renew()
        with holding_a_role(node.endpoint, prefix, **tls) as role:
            ours.issue()
            while dt.datetime.now(dt.UTC) < over_at:
                time.sleep(0.1)
            renew()  # over the connection that was opened before
            node.restart()
            print(f"certificate rotated, etcd restarted: renewed after {renew():.2f} s")
            put_until_done(client, key, b"after")
            seen.wait_events(1)
            assert not role.lost.wait(MEMBER_TTL_S)  # renewed meanwhile, over a new connection


def test_authority_rotated_on_disk_is_trusted_when_etcd_is_back(tmp_path, clients, prefix):
    """Replace the authority of the servers' certificates, and of ours."""
    files = Files(tmp_path / "all", "127.0.0.1")
    with local_etcd(fsync=False, tls=files.server(client_cert_auth=True)) as node:
        client = clients(node.endpoint, ca=files.ca, cert=files.cert, key=files.key)
        renew = renews(client)
        renew()
        files.renew_authority()
        files.issue()
        node.restart()
        print(f"authority rotated, etcd restarted: renewed after {renew():.2f} s")
        put_until_done(client, prefix.encode(), b"after")


def test_client_certificate_that_is_late_is_waited_for(tmp_path, clients, prefix, caplog):
    """Report that etcd refuses it, and read the files again at the next try."""
    files = Files(tmp_path / "all", "127.0.0.1")
    with local_etcd(fsync=False, tls=files.server(client_cert_auth=True)) as node:
        old = files.cert.read_bytes(), files.key.read_bytes()
        ours = tmp_path / "ours.pem", tmp_path / "ours.key"
        for path, text in zip(ours, old, strict=True):
            path.write_bytes(text)
        settings = {"cert": ours[0], "key": ours[1], "timeout": 10.0}
        client = clients(node.endpoint, ca=files.ca, **settings)
        renew = renews(client)
        renew()
        files.renew_authority()
        files.issue()
        node.restart()
        with pytest.raises(EtcdTls, match="client certificate"):
            client.range(b"k")
        ours[0].write_bytes(files.cert.read_bytes())
        with pytest.raises(EtcdTls):
            client.range(b"k")
        assert "the last usable PEM texts are used" in caplog.text
        ours[1].write_bytes(files.key.read_bytes())
        print(f"certificate and key are there at last: renewed after {renew():.2f} s")
        put_until_done(client, prefix.encode(), b"after")
