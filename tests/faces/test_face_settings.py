"""Check that an unusable setting is refused at once, and named."""

import socket

import pytest
from faces_support import BlockingFace

import rink
from rink.testing.memory.cluster import MemoryCluster

SESSION = [
    ("ttl", 1.9),
    ("ttl", 0),
    ("ttl", -5),
    ("ttl", float("nan")),
    ("ttl", float("inf")),
    ("ttl", "60"),
    ("ttl", True),
    ("ttl", None),
    ("ttl", 1e10),
    ("ttl", 10**400),
    ("margin", -1),
    ("margin", float("nan")),
    ("margin", 40),
    ("margin", "1"),
    ("timeout", 0),
    ("timeout", -1),
    ("timeout", float("inf")),
    ("prefix", "rink"),
    ("prefix", ""),
    ("prefix", b"rink/"),
    ("prefix", "\ud800/"),
    ("endpoints", []),
    ("endpoints", ""),
    ("endpoints", 7),
    ("endpoints", [7]),
    ("endpoint", "ftp://127.0.0.1:2379"),
    ("endpoint", "http://127.0.0.1:port"),
    ("endpoint", "http://"),
    ("endpoint", "http://127.0.0.1:2379/v3"),
    ("endpoints", ["http://127.0.0.1:1", "https://127.0.0.1:2"]),
    ("user", "app"),
    ("password", "only one of the two"),
    ("cert", "/nowhere/cert.pem"),
    ("key", "/nowhere/key.pem"),
    ("ca", "/nowhere/ca.pem"),
]

MEMBER = [
    ("rebalance_delay", -1),
    ("rebalance_delay", float("inf")),
    ("initial_delay", float("nan")),
    ("leave_delay", "1"),
    ("grace", -0.1),
    ("leave_timeout", None),
    ("join_timeout", -1),
    ("stagger", 0),
    ("stagger", -1),
    ("stagger", 1.5),
    ("stagger", True),
    ("scheme", "rendezvous"),
    ("scheme", "balanced:0"),
    ("scheme", "balanced:08"),
    ("scheme", "balanced:"),
    ("scheme", []),
    ("scheme", 7),
    ("scheme", ["jump", 7]),
    ("labels", {"a": 1}),
    ("labels", ["a"]),
    ("member name", ""),
    ("group name", ""),
]


@pytest.mark.parametrize(("what", "value"), SESSION)
def test_setting_of_a_session_that_cannot_be_used_is_named(face, what, value):
    settings = {"endpoints" if what == "endpoint" else what: value}
    settings.setdefault("endpoints", "http://127.0.0.1:1")
    with pytest.raises(rink.ConfigError, match=what) as caught:
        face.session(**settings)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("what", "value"), MEMBER)
def test_setting_of_a_member_that_cannot_be_used_is_named(face, what, value):
    settings = {"group": "g", what.removesuffix(" name").replace("member", "name"): value}
    with MemoryCluster() as cluster:
        session = face.session(cluster.client(), ttl=5)
        with pytest.raises(rink.ConfigError, match=what):
            face.rink(session, **settings)
        session.close()


@pytest.mark.parametrize(("ttl", "margin", "gives"), [(2, None, 0.5), (60, None, 6), (2.1, 0, 0)])
def test_ttl_is_rounded_up_and_the_margin_is_a_tenth_of_it(ttl, margin, gives):
    with MemoryCluster() as cluster, rink.Session(cluster.client(), ttl=ttl, margin=margin) as made:
        assert made.ttl == (3 if ttl == 2.1 else ttl)
        assert made.margin == gives


def test_endpoints_come_from_the_environment_where_none_are_given(monkeypatch):
    monkeypatch.setenv("RINK_ETCD", "http://127.0.0.1:1, http://127.0.0.1:3")
    with rink.Session() as session:
        assert session.etcd.endpoint == "http://127.0.0.1:1"
    monkeypatch.delenv("RINK_ETCD")
    with rink.Session() as session:
        assert session.etcd.endpoint == "http://127.0.0.1:2379"


def test_default_name_says_where_the_member_runs():
    with MemoryCluster() as cluster, rink.Session(cluster.client()) as session:
        assert BlockingFace().rink(session, "g").name.startswith(socket.gethostname() + "-")
