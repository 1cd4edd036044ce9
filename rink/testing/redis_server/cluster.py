"""A Redis Cluster of a test: how its nodes meet, and when it serves."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from rink.testing.process.server import awake, wait_until
from rink.testing.redis_server.node import RedisNode, fields
from rink.testing.redis_server.resp import RedisServerError, RedisUnavailable
from rink.testing.redis_server.start import RedisSettings, started_redises

if TYPE_CHECKING:
    from pathlib import Path

    from rink.testing.process.process import ProcessOwner

SLOTS = 16_384


class RedisCluster:
    """Several masters that share the slots of one Redis Cluster.

    Attributes:
        nodes: the masters, those that are down too.
    """

    def __init__(self, nodes: tuple[RedisNode, ...], deadline: float) -> None:
        self.nodes = nodes
        self._deadline = deadline

    @property
    def urls(self) -> list[str]:
        """Return where clients reach the nodes."""
        return [node.url for node in self.nodes]

    def node_of(self, key: str) -> RedisNode:
        """The node that serves a key, as those that run and are not frozen know it.

        Raises:
            RedisUnavailable: none of them answers, or nobody serves the key's slot.
        """
        for node in awake(self.nodes):
            slot = node.call("CLUSTER", "KEYSLOT", key)
            for first, last, (_, port, *_), *_ in node.call("CLUSTER", "SLOTS"):
                if first <= slot <= last:
                    return next(each for each in self.nodes if each.port == port)
        raise RedisUnavailable(f"none of {self.nodes} serves {key!r}")

    def wait_healthy(self, timeout: float | None = None) -> None:
        """Wait until every node that runs and is not frozen says that the cluster serves.

        Args:
            timeout: seconds; None is the deadline the cluster was made with.

        Raises:
            RedisUnavailable: one did not say so in time.
        """
        timeout = self._deadline if timeout is None else timeout
        if not wait_until(lambda: all(map(self._serves, awake(self.nodes))), timeout):
            said = "\n".join(f"{node}: {self._state(node)}" for node in awake(self.nodes))
            raise RedisUnavailable(f"the cluster did not serve within {timeout:g} s:\n{said}")

    def _serves(self, node: RedisNode) -> bool:
        state = self._state(node)
        known = state.get("cluster_known_nodes") == str(len(self.nodes))
        return known and state.get("cluster_state") == "ok"

    def _state(self, node: RedisNode) -> dict[str, str]:
        try:
            return fields(node.call("CLUSTER", "INFO", timeout=1.0))
        except RedisServerError as error:
            return {"error": str(error)}


def formed(
    size: int, folder: Path, owner: ProcessOwner, settings: RedisSettings, node_timeout_ms: int
) -> RedisCluster:
    """A cluster of so many masters that serves all slots; one that lies in the folder already is kept.

    Raises:
        RedisUnavailable: a node was not healthy, or the cluster did not serve, by the deadline.
    """

    def more(ports: list[dict[str, int]], i: int) -> list[str]:
        return [
            "cluster-enabled yes",
            f"cluster-port {ports[i]['bus']}",
            f"cluster-node-timeout {node_timeout_ms}",
        ]

    nodes = started_redises(size, folder, owner, settings, ports=("client", "bus"), more=more)
    cluster = RedisCluster(nodes, settings.deadline)
    if fields(nodes[0].call("CLUSTER", "INFO"))["cluster_slots_assigned"] == "0":
        _share_slots(nodes)
        _introduce(nodes)
    cluster.wait_healthy()
    return cluster


def _share_slots(nodes: tuple[RedisNode, ...]) -> None:
    for i, node in enumerate(nodes):
        first, end = SLOTS * i // len(nodes), SLOTS * (i + 1) // len(nodes)
        node.call("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
        # Epochs of their own, else the nodes would first have to find out who is who.
        node.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)


def _introduce(nodes: tuple[RedisNode, ...]) -> None:
    # Each to each: by gossip alone the news would take a second longer.
    for one, other in itertools.combinations(nodes, 2):
        _, bus = other.call("CONFIG", "GET", "cluster-port")
        one.call("CLUSTER", "MEET", other.host, other.port, bus)
