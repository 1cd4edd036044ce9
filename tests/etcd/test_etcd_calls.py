"""Check single calls: sent once, with metadata, and guarded."""

import time

import grpc
import pytest
from etcd_scripted import ScriptedEtcd, Seen, header, put

from rink.errors import EtcdClusterChanged, EtcdError, EtcdUnavailable
from rink.etcd.connections import Connection, OwnConnection
from rink.etcd.proto import rinketcd_pb2 as pb


def test_txn_is_sent_once_whatever_is_said(clients):
    """Only a refusal of its token lets it be sent again."""
    answers = iter([pb.TxnResponse(header=header(2))])

    def txn(_):
        return next(answers, grpc.StatusCode.UNAVAILABLE)

    with ScriptedEtcd(txn=txn) as one, ScriptedEtcd(txn=txn) as two:
        client = clients(one.endpoint, two.endpoint, timeout=20.0)
        put(client, b"k")
        with pytest.raises(EtcdUnavailable):
            put(client, b"k")
        assert len(one.seen["txn"]) == 2
        assert len(two.seen["txn"]) == 0


def test_txn_goes_over_a_connection_that_has_just_answered(clients):
    """A read finds a frozen server, or one without quorum, without doubt."""

    def txn(_):
        return pb.TxnResponse(header=header(2))

    def silent(_):
        return grpc.StatusCode.UNAVAILABLE

    with ScriptedEtcd(txn=txn, range=silent) as one, ScriptedEtcd(txn=txn) as two:
        client = clients(one.endpoint, two.endpoint, timeout=10.0)
        put(client, b"k")
        put(client, b"k")
        assert [len(etcd.seen["txn"]) for etcd in (one, two)] == [0, 2]
        assert [len(etcd.seen["range"]) for etcd in (one, two)] == [1, 1]


def test_read_without_an_answer_is_asked_elsewhere(clients):
    def silent(_):
        return grpc.StatusCode.UNAVAILABLE

    with ScriptedEtcd(range=silent) as one, ScriptedEtcd() as two:
        client = clients(one.endpoint, two.endpoint, timeout=10.0)
        client.range(b"k")
        client.range(b"k")
        assert [len(etcd.seen["range"]) for etcd in (one, two)] == [1, 2]


def test_call_refused_by_all_endpoints_fails_at_once_if_told_to(clients):
    """Port 1 has no server."""
    nobody = ("http://127.0.0.1:1", "http://127.0.0.2:1")
    began = time.monotonic()
    client = clients(*nobody, timeout=60.0)
    client.fail_refused()
    with pytest.raises(EtcdUnavailable, match="no etcd listens at") as caught:
        put(client, b"k")
    assert time.monotonic() - began < 20.0
    assert set(caught.value.endpoints) == set(nobody)


def test_call_refused_by_one_endpoint_waits_for_the_other(clients):
    answers = iter([grpc.StatusCode.UNAVAILABLE, pb.RangeResponse(header=header())])
    with ScriptedEtcd(range=lambda _: next(answers)) as etcd:
        client = clients("http://127.0.0.1:1", etcd.endpoint, timeout=60.0)
        client.fail_refused()
        client.range(b"k")
        assert len(etcd.seen["range"]) == 2


def test_call_refused_by_all_endpoints_waits_by_default(clients):
    with pytest.raises(EtcdUnavailable, match="did not answer range"):
        clients("http://127.0.0.1:1", timeout=0.3).range(b"k")


def test_call_looks_for_tls_trouble_once_however_often_it_is_tried(clients, monkeypatch):
    looks = []
    monkeypatch.setattr(Connection, "find_tls_trouble", lambda *_: looks.append(1))
    monkeypatch.setattr(OwnConnection, "find_tls_trouble", lambda *_: looks.append(1))
    silent = [grpc.StatusCode.UNAVAILABLE] * 3
    answers = [*silent, pb.RangeResponse(header=header(2))]
    with ScriptedEtcd(range=lambda _: answers.pop(0)) as etcd:
        clients(etcd.endpoint, timeout=10.0).range(b"k")
    assert looks == [1]


@pytest.mark.parametrize(
    ("names", "is_dev"),
    [(["rink-dev"], True), (["n0"], False), (["rink-dev", "rink-dev"], False), ([], False)],
)
def test_etcd_of_rink_dev_is_known_by_the_name_of_its_only_member(clients, names, is_dev):
    members = [pb.Member(ID=1, name=name) for name in names]

    def listed(_):
        return pb.MemberListResponse(header=header(), members=members)

    with ScriptedEtcd(members=listed) as etcd:
        assert clients(etcd.endpoint).is_of_rink_dev() is is_dev


@pytest.mark.parametrize("code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNAVAILABLE])
def test_etcd_that_does_not_list_its_members_is_not_of_rink_dev(clients, code):
    """In doubt, the version warning is logged."""
    with ScriptedEtcd(members=lambda _: code) as etcd:
        assert clients(etcd.endpoint, timeout=0.3).is_of_rink_dev() is False


def test_every_request_and_every_stream_asks_for_a_leader(clients):
    """Otherwise a server without a leader would be silent or outdated."""

    def watch(request):
        yield pb.WatchResponse(header=header(), created=True)

    def keepalive(request):
        yield pb.LeaseKeepAliveResponse(header=header(), ID=request.ID, TTL=9)

    answers = {
        "txn": lambda _: pb.TxnResponse(header=header()),
        "grant": lambda _: pb.LeaseGrantResponse(header=header(), ID=1, TTL=9),
        "time_to_live": lambda _: pb.LeaseTimeToLiveResponse(header=header(), TTL=9),
    }
    with ScriptedEtcd(watch=watch, keepalive=keepalive, **answers) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        client.range(b"k")
        put(client, b"k")
        client.grant(9)
        client.time_to_live(1)
        client.watch(b"k", b"", 1, lambda _: None)
        client.keepalives(seen.deliver).send(1)
        seen.wait(lambda s: s.items)
        etcd.wait(lambda etcd: set(etcd.metadata) == set(etcd.PATHS))
        for name, sent in etcd.metadata.items():
            assert [one.get("hasleader") for one in sent] == ["true"] * len(sent), name
        client.close()


EXISTS = (grpc.StatusCode.FAILED_PRECONDITION, "etcdserver: lease already exists")


def test_grant_whose_first_answer_was_lost_is_granted(clients):
    """The lease exists because of the earlier try of the same caller."""
    answers = [grpc.StatusCode.UNAVAILABLE, EXISTS]
    with ScriptedEtcd(grant=lambda _: answers.pop(0)) as etcd:
        client = clients(etcd.endpoint)
        granted = client.grant(8, lease=5)
        assert (granted.lease, granted.ttl) == (5, 8)


def test_grant_refused_at_the_first_try_is_refused(clients):
    with ScriptedEtcd(grant=lambda _: EXISTS) as etcd:
        client = clients(etcd.endpoint)
        with pytest.raises(EtcdError, match="lease already exists"):
            client.grant(8, lease=5)


@pytest.mark.parametrize(
    ("later", "what"),
    [
        (header(10, cluster_id=2), "cluster"),
        (header(9), "revision"),
        (header(11, raft_term=1), "term"),
    ],
)
def test_answer_of_another_cluster_or_of_the_past_raises(clients, later, what):
    answers = [header(10), later, later]
    with ScriptedEtcd(range=lambda _: pb.RangeResponse(header=answers.pop(0))) as etcd:
        client = clients(etcd.endpoint)
        client.range(b"k")
        with pytest.raises(EtcdClusterChanged, match=what):
            client.range(b"k")
        assert client.guard.epoch == 1
        client.range(b"k")


def test_call_answered_without_cluster_id_is_refused_and_names_endpoint(clients):
    with ScriptedEtcd(range=lambda _: pb.RangeResponse(header=header(cluster_id=0))) as etcd:
        client = clients(etcd.endpoint)
        with pytest.raises(EtcdError, match="carry no cluster id") as raised:
            client.range(b"k")
        assert raised.value.endpoints == (client.endpoint,)
        assert client.guard.epoch == 0


def test_grpc_proxy_is_refused_before_a_transaction_or_a_watch(clients):
    """Its list of members carries no cluster id, though its other answers do."""

    def members(_):
        return pb.MemberListResponse(header=pb.ResponseHeader())

    with ScriptedEtcd(members=members) as etcd:
        client, seen = clients(etcd.endpoint), Seen()
        with pytest.raises(EtcdError, match="carry no cluster id"):
            put(client, b"k")
        client.watch(b"k", b"", 1, seen.deliver)
        assert "carry no cluster id" in str(seen.wait_broken())
        assert etcd.seen["txn"] == etcd.seen["watch"] == []


@pytest.mark.parametrize(
    "answer", [pb.MemberListResponse(header=header()), (grpc.StatusCode.PERMISSION_DENIED, "no")]
)
def test_members_are_asked_once_and_may_be_kept_from_a_user(clients, answer):
    def txn(_):
        return pb.TxnResponse(header=header(), succeeded=True)

    with ScriptedEtcd(members=lambda _: answer, txn=txn) as etcd:
        client = clients(etcd.endpoint)
        for _ in range(2):
            put(client, b"k")
            client._transport.ring.failed(client._transport.ring.first)  # verified anew
        assert len(etcd.seen["members"]) == 1


def test_bare_token_is_sent_as_metadata(clients):
    """Without TLS, gRPC would refuse call credentials."""
    with ScriptedEtcd() as etcd:
        client = clients(etcd.endpoint, user="u", password="p")
        client._transport.tokens._token = "a-token"
        client.range(b"k")
        assert etcd.metadata["range"][0]["token"] == "a-token"
