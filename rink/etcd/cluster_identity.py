"""What is known of the cluster, so that another one, or its own past, is not taken for it.

An etcd restored from a backup counts revisions and raft terms from an older point, or has another
cluster id. Leases, records and fencing tokens of before mean nothing there. So every answer is held
against what had been answered *before its request was sent*: answers overtake each other on the
way, and only a request sent later can prove that history went back.

A change is told to everyone once: it ends the guard's **epoch**. Whatever was sent or opened in an
earlier epoch (calls under way, watches, keepalive streams) fails with `EtcdClusterChanged`; what
begins afterwards speaks with the cluster as it now is.

An answer without a cluster id tells of no cluster at all, so it is refused and teaches nothing.
etcd's grpc-proxy gives such answers where a watch joins another one's stream. Taken for another
cluster, they ended 20 sessions a second.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import attrs

from rink.errors import EtcdClusterChanged, EtcdError

if TYPE_CHECKING:
    from rink.etcd.proto import rinketcd_pb2 as pb


class NoClusterIdError(EtcdError):
    """An answer carries no cluster id; raised to users as what it is, an EtcdError."""


@attrs.frozen
class KnownCluster:
    """What was known at one moment.

    Attributes:
        epoch: how many changes of the cluster have been seen.
        cluster_id: 0 before the first answer.
        raft_term: the highest of an answer that a quorum stood behind.
        revision: the highest of a linearizable answer.
    """

    epoch: int = 0
    cluster_id: int = 0
    raft_term: int = 0
    revision: int = 0


class ClusterIdentity:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known = KnownCluster()

    @property
    def known(self) -> KnownCluster:
        """Return what is known now.

        Take it before sending, and hand it to `check`.
        """
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
        """Check an answer against what was known at its request, and learn.

        Args:
            header: the answer's.
            known: what was known before the request was sent.
            endpoint: who answered.
            quorum: a quorum stood behind the answer, so its raft term counts. (A lone member that
                calls for elections counts terms up that never come to be.)
            revision: the answer is linearizable, so its revision counts.

        Raises:
            EtcdClusterChanged: it comes from another cluster, or from this one's past, or the
                request was sent before such a change.
            NoClusterIdError: it carries no cluster id.
        """
        if not header.cluster_id:
            raise NoClusterIdError(
                f"answers of {endpoint} carry no cluster id, as if from etcd's grpc-proxy. So "
                "they do not identify etcd's history. Connect to the etcd servers themselves",
                endpoints=[endpoint],
            )
        with self._lock:
            if known.epoch != self._known.epoch:
                raise EtcdClusterChanged(
                    "the etcd cluster was seen to change while this was under way"
                )
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
