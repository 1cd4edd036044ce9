"""Part a cluster and its members from each other.

The means is a routed network, or wires in its place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import attrs
from network import Network, Party, refusal
from wire import Wire

from rink.testing import EtcdCluster, EtcdNode, Place, etcd_cluster


@attrs.frozen
class Port:
    """Describe how to start and configure one plugged-in member."""

    endpoints: list[str]
    command: tuple[str, ...]
    plug: Party | list[Wire]


class Routed:
    """Give every etcd node and member a namespace; drop their packets."""

    servers = "3 nodes, own namespaces"
    missing = None

    def __init__(self, network: Network, places: list[Party], cluster: EtcdCluster) -> None:
        self.cluster = cluster
        self.network = network
        self._parties = dict(zip(cluster.nodes, places, strict=True))

    def port(self) -> Port:
        party = self.network.add()
        return Port(self.cluster.endpoints, party.command, party)

    def cut_off(self, port: Port, *, hears: bool = False, is_heard: bool = False) -> None:
        self.network.cut_off(port.plug, hears=hears, is_heard=is_heard)

    def part(
        self, one: list[EtcdNode | Port], other: list[EtcdNode | Port], *, hears: bool = False
    ) -> None:
        """Deliver nothing from one side to the other.

        Deliver nothing back either, unless the first side `hears`.
        """
        for source in map(self._party, one):
            for target in map(self._party, other):
                self.network.drop(source, target)
                if not hears:
                    self.network.drop(target, source)

    def heal(self) -> None:
        self.network.heal()

    def _party(self, one: EtcdNode | Port) -> Party:
        return one.plug if isinstance(one, Port) else self._parties[one]


class Wired:
    """Keep all on loopback, with a wire of its own for each member.

    The wires to etcd can be silenced.

    Args:
        cluster: of etcd.
        missing: the reason why it is not `Routed`.
    """

    servers = "3 nodes, silent proxies"

    def __init__(self, cluster: EtcdCluster, missing: str) -> None:
        self.cluster = cluster
        self.missing = missing
        self._wires: list[Wire] = []

    def port(self) -> Port:
        wires = [Wire(endpoint) for endpoint in self.cluster.endpoints]
        self._wires += wires
        return Port([wire.endpoint for wire in wires], (), wires)

    def cut_off(self, port: Port) -> None:
        for wire in port.plug:
            wire.silence()

    def heal(self) -> None:
        for wire in self._wires:
            wire.heal()

    def close(self) -> None:
        for wire in self._wires:
            wire.close()


@contextlib.contextmanager
def parting_world() -> Iterator[Routed | Wired]:
    """Make a cluster of three in a world that can be parted."""
    missing = refusal()
    if missing is None:
        with contextlib.closing(Network()) as network:
            places = [network.add() for _ in range(3)]
            at = tuple(Place(party.address, party.command) for party in places)
            with etcd_cluster(3, places=at, fsync=False) as cluster:
                yield Routed(network, places, cluster)
    else:
        with (
            etcd_cluster(3, fsync=False) as cluster,
            contextlib.closing(Wired(cluster, missing)) as wired,
        ):
            yield wired
