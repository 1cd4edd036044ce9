"""What all integration tests share: one real etcd, and a prefix of their own in it.

A test that kills, freezes, compacts or counts revisions starts its own with `local_etcd`, or takes
the `cluster` of its file.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import uuid
from pathlib import Path

import pytest

from rink.testing import etcd_cluster, local_etcd

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("agreement", "members", "processes", "wire")

from agreement import agree  # noqa: E402 - needs the path above
from wire import Wire  # noqa: E402

log = logging.getLogger("rink.testing")


LONGEST = ("spark", "test_drivers", "test_chaos", "test_demo_streams", "test_demo")
"""Groups of tests that begin first, so that no core waits for them in the end."""


@pytest.hookimpl(trylast=True)  # behind the plugin that shuffles
def pytest_collection_modifyitems(items):
    """Keep the tests of one file together, and all that share the session of Spark.

    `--dist loadgroup` gives each group to one process, so there is one JVM. Tests that mostly wait share little.
    """
    turns = {}
    for item in items:
        if item.get_closest_marker("waits") is None:
            group = "spark" if "spark" in item.fixturenames else item.path.stem
            item.add_marker(pytest.mark.xdist_group(group))
            turns[item] = LONGEST.index(group) if group in LONGEST else len(LONGEST)
    items.sort(key=lambda item: turns.get(item, len(LONGEST)))


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


class ThreeNodes:
    """A cluster of a file's own."""

    def __init__(self):
        self._opened = contextlib.ExitStack()
        self.renew()

    def renew(self):
        """Begin with a new one."""
        self.close()
        self.cluster = self._opened.enter_context(etcd_cluster(3, fsync=False))
        return self.cluster

    def close(self):
        self._opened.close()


@pytest.fixture(scope="module")
def three_nodes():
    made = ThreeNodes()
    yield made
    made.close()


@pytest.fixture
def cluster(three_nodes):
    """All three run when a test begins, have a leader, and hold the same data."""
    made = three_nodes.cluster
    for node in made.nodes:
        node.thaw()
    for node in made.nodes:
        node.start(wait=False)
    made.wait_healthy()
    made.leader()
    if not agree(made.nodes):
        log.warning(
            "these servers of etcd hold different data by now, its own fault: a new cluster"
        )
        made = three_nodes.renew()
        made.leader()
    return made


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
