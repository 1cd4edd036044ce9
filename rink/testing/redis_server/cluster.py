"""Form a Redis Cluster for a test, and wait until it serves all slots."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from rink.testing.process.server import awake, wait_until
from rink.testing.redis_server.errors import RedisServerError, RedisServerUnavailable
from rink.testing.redis_server.node import RedisNode, fields
from rink.testing.redis_server.start import RedisSettings, started_redises

if TYPE_CHECKING:
    from pathlib import Path

    from rink.testing.process.process import ProcessOwner

SLOTS = 16_384


class RedisCluster:
    """Control several masters that share the slots of one Redis Cluster.

    Attributes:
        nodes: all masters, running or not.
    """

    def __init__(self, nodes: tuple[RedisNode, ...], deadline: float) -> None:
        self.nodes = nodes
        self._deadline = deadline

    @property
    def urls(self) -> list[str]:
        """Return the URL of each node."""
        return [node.url for node in self.nodes]

    def node_of(self, key: str) -> RedisNode:
        """Return the node that serves a key, by the slots of a running node.

        Raises:
            RedisServerUnavailable: no node answers, or no node serves the key's slot.
        """
        for node in awake(self.nodes):
            slot = node.call("CLUSTER", "KEYSLOT", key)
            for first, last, (_, port, *_), *_ in node.call("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return next(each for each in self.nodes if each.port == port)
        raise RedisServerUnavailable(f"none of {self.nodes} serves the key {key!r}")

    def wait_healthy(self, timeout: float | None = None) -> None:
        """Wait until every running node reports that the cluster serves.

        Frozen nodes are skipped. `timeout` is in seconds; None is the deadline of the cluster.

        Raises:
            RedisServerUnavailable: a node did not report this in time.
        """
        timeout = self._deadline if timeout is None else timeout
        if not wait_until(lambda: all(map(self._serves, awake(self.nodes))), timeout):
            states = "\n".join(f"{node}: {self._state(node)}" for node in awake(self.nodes))
            raise RedisServerUnavailable(
                f"the Redis cluster did not serve within {timeout:g} s:\n{states}"
            )

    def _serves(self, node: RedisNode) -> bool:
        state = self._state(node)
        knows_all = state.get("cluster_known_nodes") == str(len(self.nodes))
        return knows_all and state.get("cluster_state") == "ok"

    def _state(self, node: RedisNode) -> dict[str, str]:
        try:
            return fields(node.call("CLUSTER", "INFO", timeout=1.0))
        except RedisServerError as error:
            return {"error": str(error)}


def formed(
    size: int, folder: Path, owner: ProcessOwner, settings: RedisSettings, node_timeout_ms: int
) -> RedisCluster:
    """Start the folder's cluster or a new one, and return it when it serves.

    Raises:
        RedisServerUnavailable: a node was not healthy, or the cluster did not serve, by the
            deadline.
    """

    def cluster_lines(ports: list[dict[str, int]], i: int) -> list[str]:
        return [
            "cluster-enabled yes",
            f"cluster-port {ports[i]['bus']}",
            f"cluster-node-timeout {node_timeout_ms}",
        ]

    nodes = started_redises(
        size, folder, owner, settings, ports=("client", "bus"), more=cluster_lines
    )
    cluster = RedisCluster(nodes, settings.deadline)
    if fields(nodes[0].call("CLUSTER", "INFO"))["cluster_slots_assigned"] == "0":
        # Slots and epochs come first: a node that knows other nodes refuses SET-CONFIG-EPOCH.
        _share_slots(nodes)
        _introduce(nodes)
    cluster.wait_healthy()
    return cluster


def _share_slots(nodes: tuple[RedisNode, ...]) -> None:
    for i, node in enumerate(nodes):
        first, end = SLOTS * i // len(nodes), SLOTS * (i + 1) // len(nodes)
        node.call("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        # Nodes of one epoch would first have to resolve the collision.
        node.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)


def _introduce(nodes: tuple[RedisNode, ...]) -> None:
    # Every pair meets, because gossip alone would take a second longer.
    for node, peer in itertools.combinations(nodes, 2):
        _, bus_port = peer.call("CONFIG", "GET", "cluster-port")
        node.call("CLUSTER", "MEET", peer.host, peer.port, bus_port)
