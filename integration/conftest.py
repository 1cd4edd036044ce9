"""What all integration tests share: one real etcd, and a prefix of their own in it.

A test that kills, freezes, compacts or counts revisions starts its own with `local_etcd`, or takes
the `cluster` of its file.
"""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

from rink.testing import etcd_cluster, local_etcd

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("members", "processes", "wire")

from wire import Wire  # noqa: E402 - needs the path above


@pytest.fixture(scope="session")
def etcd_node():
    """One etcd for the whole run, or the one that RINK_TEST_ETCD names."""
    with local_etcd() as node:
        yield node


@pytest.fixture(scope="session")
def etcd_url(etcd_node):
    """Where it answers."""
    return etcd_node.endpoint


@pytest.fixture
def prefix():
    """A key prefix that no other test uses."""
    return f"test-{uuid.uuid4().hex}/"


@pytest.fixture(scope="module")
def three_nodes():
    """A cluster of this file's own."""
    with etcd_cluster(3, fsync=False) as cluster:
        yield cluster


@pytest.fixture
def cluster(three_nodes):
    """All three run when a test begins, and have a leader."""
    for node in three_nodes.nodes:
        node.thaw()
    for node in three_nodes.nodes:
        node.start(wait=False)
    three_nodes.wait_healthy()
    three_nodes.leader()
    return three_nodes


@pytest.fixture
def wire_to():
    """Lays wires to servers; all are gone in the end."""
    wires = []

    def wire_to(node):
        wires.append(Wire(node.endpoint))
        return wires[-1]

    yield wire_to
    for wire in wires:
        wire.close()
