"""Check that wrong settings are named before anything is opened."""

import pytest
import trustme

from rink.errors import ConfigError
from rink.etcd.client import Client
from rink.etcd.endpoints import Endpoint, read_endpoints


@pytest.mark.parametrize(
    ("text", "tls", "expected"),
    [
        (
            "http://127.0.0.1:2379",
            False,
            Endpoint("http://127.0.0.1:2379", "127.0.0.1", 2379, False),
        ),
        ("http://etcd/", False, Endpoint("http://etcd:2379", "etcd", 2379, False)),
        ("https://etcd:1", False, Endpoint("https://etcd:1", "etcd", 1, True)),
        ("etcd:1", False, Endpoint("http://etcd:1", "etcd", 1, False)),
        ("etcd:1", True, Endpoint("https://etcd:1", "etcd", 1, True)),
        (" etcd ", False, Endpoint("http://etcd:2379", "etcd", 2379, False)),
        ("http://[::1]:1", False, Endpoint("http://[::1]:1", "::1", 1, False)),
    ],
)
def test_endpoint_is_read(text, tls, expected):
    assert read_endpoints([text], tls=tls) == (expected,)


def test_grpc_is_told_an_ipv6_address_in_brackets():
    assert read_endpoints(["http://[::1]:1"], tls=False)[0].target == "[::1]:1"


def test_order_is_kept_and_doubles_are_not():
    read = read_endpoints(["http://b:1", "a:1", "b:1"], tls=False)
    assert [one.host for one in read] == ["b", "a"]


@pytest.mark.parametrize(
    ("endpoints", "settings", "names"),
    [
        ([], {}, "no endpoint"),
        ("http://a:1", {}, "list of addresses"),
        ([3], {}, "3"),
        (["ftp://a:1"], {}, "ftp"),
        (["http://a:1", "https://b:1"], {}, "mix http and https"),
        (["http://a:port"], {}, "http://a:port"),
        (["http://a:99999"], {}, "99999"),
        (["http://a:0"], {}, "port 0"),
        (["http://:1"], {}, "no host"),
        (["http://a:1/v3"], {}, "more than a host"),
        (["http://a:1"], {"user": "u"}, "without password"),
        (["http://a:1"], {"password": "p"}, "without user"),
        (["http://a:1"], {"user": "", "password": "p"}, "user is empty"),
        (["http://a:1"], {"timeout": 0}, "timeout"),
        (["http://a:1"], {"timeout": float("nan")}, "timeout"),
        (["http://a:1"], {"ca": b"nonsense"}, "ca is not PEM"),
        (["http://a:1"], {"cert": "/none.pem"}, "cert is given without key"),
        (["http://a:1"], {"key": "/none.pem"}, "key is given without cert"),
        (["http://a:1"], {"ca": "/none.pem"}, r"/none\.pem.*No such file"),
        (["a:1"], {"ca": b"-----BEGIN CERTIFICATE-----\n"}, "ca is cut short"),
        (["a:1"], {"ca": b"-----BEGIN CERTIFICATE-----\n-----END "}, "ca holds no usable"),
    ],
)
def test_what_is_wrong_is_named(endpoints, settings, names):
    with pytest.raises(ConfigError, match=names):
        Client(endpoints, **settings)


def test_password_in_an_address_is_refused_and_not_repeated():
    with pytest.raises(ConfigError) as caught:
        Client(["http://u:hunter2@a:1"])
    assert "hunter2" not in str(caught.value)


def test_certificates_ask_for_https():
    with pytest.raises(ConfigError, match="is not https"):
        Client(["http://a:1"], ca=trustme.CA().cert_pem.bytes())
