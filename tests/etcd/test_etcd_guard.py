"""Check that another cluster, or an earlier state, is noticed."""

import pytest

from rink.errors import EtcdClusterChanged, EtcdError
from rink.etcd.cluster_identity import ClusterIdentity
from rink.etcd.proto import rinketcd_pb2 as pb


def header(revision=10, cluster_id=1, raft_term=2):
    return pb.ResponseHeader(cluster_id=cluster_id, revision=revision, raft_term=raft_term)


def learned(*headers):
    guard = ClusterIdentity()
    for one in headers:
        guard.check(one, guard.known, "etcd:1", quorum=True, revision=True)
    return guard


def test_it_learns_the_highest():
    known = learned(header(10, raft_term=2), header(12, raft_term=3)).known
    assert (known.cluster_id, known.revision, known.raft_term) == (1, 12, 3)


def test_answers_that_overtake_each_other_are_fine():
    """The request of the older answer was sent before the newer one was known."""
    guard = learned(header(10))
    sent = guard.known
    guard.check(header(12, raft_term=3), guard.known, "etcd:1", quorum=True, revision=True)
    guard.check(header(11), sent, "etcd:1", quorum=True, revision=True)
    assert guard.known.revision == 12
    assert guard.known.raft_term == 3


@pytest.mark.parametrize(
    ("later", "says"),
    [
        (header(9), "revision went back from 10 to 9"),
        (header(10, raft_term=1), "raft term went back from 2 to 1"),
        (header(11, cluster_id=5), "cluster 5, not from 1"),
    ],
)
def test_what_goes_back_is_a_change(later, says):
    guard = learned(header(10))
    with pytest.raises(EtcdClusterChanged, match=says):
        guard.check(later, guard.known, "etcd:1", quorum=True, revision=True)


def test_answer_with_no_quorum_behind_it_teaches_only_the_cluster():
    """A member's own revision lags, and a lone candidate's term runs ahead."""
    guard = learned(header(10))
    guard.check(header(4, raft_term=9), guard.known, "etcd:1", quorum=False, revision=False)
    assert (guard.known.revision, guard.known.raft_term) == (10, 2)


def test_two_first_answers_of_two_clusters_are_a_change():
    guard = ClusterIdentity()
    sent = guard.known
    guard.check(header(cluster_id=1), sent, "etcd:1", quorum=True, revision=True)
    with pytest.raises(EtcdClusterChanged):
        guard.check(header(cluster_id=2), sent, "etcd:1", quorum=True, revision=True)


def test_change_is_told_to_all_that_began_before_it_and_then_accepted():
    guard = learned(header(10))
    before = guard.known
    with pytest.raises(EtcdClusterChanged):
        guard.check(header(3), guard.known, "etcd:1", quorum=True, revision=True)
    with pytest.raises(EtcdClusterChanged, match="under way"):
        guard.check(header(11), before, "etcd:1", quorum=True, revision=True)
    guard.check(header(4), guard.known, "etcd:1", quorum=True, revision=True)
    assert (guard.known.epoch, guard.known.revision) == (1, 4)


def test_guard_answer_without_cluster_id_is_refused_in_words():
    """An id of 0 is not another cluster: it proves nothing."""
    guard = learned(header(10))
    for known in (guard.known, ClusterIdentity().known):
        with pytest.raises(EtcdError, match="etcd:1 carry no cluster id") as raised:
            guard.check(header(11, cluster_id=0), known, "etcd:1", quorum=True, revision=True)
        assert not isinstance(raised.value, EtcdClusterChanged)
        assert raised.value.endpoints == ("etcd:1",)
        assert "grpc-proxy" in str(raised.value)
    assert (guard.known.epoch, guard.known.revision) == (0, 10)
