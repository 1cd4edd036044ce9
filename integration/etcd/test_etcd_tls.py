"""TLS, client certificates, and each way in which they go wrong: a clear error, in time."""

import time

import pytest
import trustme
from etcd_support import Seen, put

from rink.errors import ConfigError, EtcdTls, EtcdUnavailable
from rink.testing import TlsFiles, local_etcd

pytestmark = pytest.mark.waits


class Files:
    """A CA, and certificates signed by it, as PEM files."""

    def __init__(self, folder, *names):
        folder.mkdir()
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(self.ca)
        self.cert, self.key = folder / "cert.pem", folder / "key.pem"
        issued = self.authority.issue_cert(*names)
        issued.private_key_pem.write_to_path(self.key)
        for blob in issued.cert_chain_pems:
            blob.write_to_path(self.cert, append=True)

    def server(self, *, client_cert_auth=False):
        return TlsFiles(self.ca, self.cert, self.key, client_cert_auth=client_cert_auth)


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
    """Everything works over it."""
    seen, renewed, key = Seen(), Seen(), prefix.encode()
    revision = put(client, key, b"v")
    client.watch(key, b"", revision, seen.deliver)
    assert seen.wait_events(1)[0].kv.value == b"v"
    client.keepalives(renewed.deliver).send(client.grant(10).lease)
    renewed.wait(lambda s: s.items)


def refused(client, match):
    """EtcdTls, and in time."""
    begin = time.monotonic()
    with pytest.raises(EtcdTls, match=match) as caught:
        client.range(b"k")
    assert caught.value.endpoints
    with pytest.raises(EtcdTls, match=match):
        put(client, b"k")
    assert time.monotonic() - begin < 4.0


def test_tls(https, files, clients, prefix):
    uses(clients(https.endpoint, ca=files.ca), prefix)


def test_tls_with_the_texts_themselves(https, files, clients, prefix):
    uses(clients(https.endpoint, ca=files.ca.read_bytes()), prefix)


def test_an_endpoint_without_a_scheme_is_https_where_a_ca_is_given(https, files, clients):
    clients(https.endpoint.removeprefix("https://"), ca=str(files.ca)).range(b"k")


def test_mutual_tls(mutual, files, clients, prefix):
    uses(clients(mutual.endpoint, ca=files.ca, cert=files.cert, key=files.key), prefix)


def test_mutual_tls_with_the_texts_themselves(mutual, files, clients):
    texts = {n: getattr(files, n).read_bytes() for n in ("ca", "cert", "key")}
    clients(mutual.endpoint, **texts).range(b"k")


def test_a_wrong_ca(https, others, clients):
    refused(clients(https.endpoint, ca=others.ca, timeout=3.0), r"certificate .* refused.*ca=")


def test_no_ca(https, clients):
    refused(clients(https.endpoint, timeout=3.0), "certificate .* refused")


def test_no_client_certificate(mutual, files, clients):
    refused(clients(mutual.endpoint, ca=files.ca, timeout=3.0), "cert= and key=")


def test_a_client_certificate_of_another_ca(mutual, files, others, clients):
    client = clients(mutual.endpoint, ca=files.ca, cert=others.cert, key=others.key, timeout=3.0)
    refused(client, "client certificate")


def test_a_host_that_the_certificate_does_not_name(tmp_path, clients):
    named_else = Files(tmp_path / "else", "etcd.example", "127.0.0.1")
    with local_etcd(fsync=False, tls=named_else.server()) as node:
        endpoint = node.endpoint.replace("127.0.0.1", "localhost")
        settings = {"cert": named_else.cert, "key": named_else.key}
        client = clients(endpoint, ca=named_else.ca, timeout=3.0, **settings)
        refused(client, "localhost.*names this host")


def test_http_to_a_server_that_speaks_tls(https, clients):
    refused(clients(https.endpoint.replace("https", "http"), timeout=3.0), "use https")


def test_https_to_a_server_that_does_not(one_node, files, clients):
    endpoint = one_node.endpoint.replace("http", "https")
    refused(clients(endpoint, ca=files.ca, timeout=3.0), "use http")


def test_an_unreachable_https_endpoint_is_not_called_a_tls_fault(files, clients):
    with pytest.raises(EtcdUnavailable, match="refused"):
        clients("https://127.0.0.1:1", ca=files.ca, timeout=1.0).range(b"k")


def test_a_key_of_another_certificate(https, files, others, clients):
    with pytest.raises(ConfigError, match="belong together"):
        clients(https.endpoint, ca=files.ca, cert=files.cert, key=others.key)
