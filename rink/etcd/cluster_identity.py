"""Notice another etcd cluster, or an earlier state of the same one.

An etcd restored from a backup counts revisions and raft terms from an older point, or has another
cluster id. Earlier leases, records and fencing tokens mean nothing there. So every answer is
compared with the answers that had come *before its request was sent*. Answers overtake each other,
so only a request that was sent later can prove that history went back.

A change ends the guard's **epoch**. Calls, watches and keepalive streams of an earlier epoch fail
with `EtcdClusterChanged`. Later calls use the cluster as it is now.

An answer without a cluster id proves nothing, so it is refused, and nothing is learned from it.
etcd's grpc-proxy gives such answers if a watch joins the stream of another watch. When they were
taken for another cluster, they ended 20 sessions a second.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import attrs

from rink.errors import EtcdClusterChanged, EtcdError

if TYPE_CHECKING:
    from rink.etcd.proto import rinketcd_pb2 as pb


class NoClusterIdError(EtcdError):
    """Report that an answer has no cluster id."""


@attrs.frozen
class KnownCluster:
    """Hold the knowledge of the cluster at one moment.

    Attributes:
        epoch: how many changes of the cluster have been seen.
        cluster_id: 0 before the first answer.
        raft_term: the highest raft term of an answer that needed a quorum.
        revision: the highest revision of a linearizable answer.
    """

    epoch: int = 0
    cluster_id: int = 0
    raft_term: int = 0
    revision: int = 0


class ClusterIdentity:
    """Compare each answer with the known cluster. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known = KnownCluster()

    @property
    def known(self) -> KnownCluster:
        """Return the knowledge now, to be read before a request, for `check`."""
        return self._known

    def check(
        self,
        header: pb.ResponseHeader,
        known: KnownCluster,
        endpoint: str,
        *,
        quorum: bool,
        revision: bool,
    ) -> None:
        """Compare an answer with the knowledge at its request, and learn from it.

        Args:
            header: the answer's header.
            known: the knowledge before the request was sent.
            endpoint: the server that answered, for messages.
            quorum: True if the answer needed a quorum, so its raft term counts. (A server that is
                alone and calls for elections raises its term without ever winning.)
            revision: True if the answer is linearizable, so its revision counts.

        Raises:
            EtcdClusterChanged: the answer comes from another cluster or an earlier state of this
                one, or the request was sent before such a change.
            NoClusterIdError: the answer has no cluster id.
        """
        if not header.cluster_id:
            raise NoClusterIdError(
                f"answers of {endpoint} carry no cluster id, as if from etcd's grpc-proxy. So "
                "they do not identify etcd's history. Connect to the etcd servers themselves",
                endpoints=[endpoint],
            )
        with self._lock:
            if known.epoch != self._known.epoch:
                text = "the etcd cluster changed while this request was under way"
                raise EtcdClusterChanged(text)
            now = self._known
            trouble = _trouble(header, known, now.cluster_id, quorum=quorum, revision=revision)
            if trouble:
                self._known = KnownCluster(
                    epoch=known.epoch + 1,
                    cluster_id=header.cluster_id,
                    raft_term=header.raft_term if quorum else 0,
                    revision=header.revision if revision else 0,
                )
                raise EtcdClusterChanged(trouble)
            self._known = KnownCluster(
                epoch=now.epoch,
                cluster_id=header.cluster_id,
                raft_term=max(now.raft_term, header.raft_term if quorum else 0),
                revision=max(now.revision, header.revision if revision else 0),
            )


def _trouble(
    header: pb.ResponseHeader, known: KnownCluster, cluster_id: int, *, quorum: bool, revision: bool
) -> str | None:
    if cluster_id not in {0, header.cluster_id}:
        return (
            f"an answer came from the etcd cluster {header.cluster_id:x}, not from "
            f"{cluster_id:x} as before: do the endpoints belong to one cluster?"
        )
    if revision and header.revision < known.revision:
        return (
            f"etcd's revision went back from {known.revision} to {header.revision}: "
            "was it restored from a backup?"
        )
    if quorum and header.raft_term < known.raft_term:
        return (
            f"etcd's raft term went back from {known.raft_term} to {header.raft_term}: "
            "was it restored from a backup?"
        )
    return None
