"""Give each integration test its own prefix in one shared etcd.

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


LONGEST = (
    "_on_spark.py",
    "test_drivers.py",
    "test_chaos.py",
    "test_crashes.py",
    "test_faults_etcd.py",
    "test_run_cron.py",
    "test_demo_streams.py",
    "test_demo.py",
)
"""Start these files first, in this order, so that no core is idle at the end."""


JOBS_ON_SPARK = ("pages_on_spark.py", "jobs_on_spark.py", "hours_on_spark.py")
"""About half of the time of all tests on Spark."""


@pytest.hookimpl(trylast=True)  # runs after pytest-randomly
def pytest_collection_modifyitems(items):
    """Put the longest files first."""

    def place(item):
        return next(
            (i for i, end in enumerate(LONGEST) if item.path.name.endswith(end)), len(LONGEST)
        )

    items.sort(key=place)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Run the files `*_on_spark.py` in two processes.

    So only two JVMs start. Spark waits much of the time, so two suffice.
    """
    from xdist.scheduler import LoadScopeScheduling

    class TwoJvms(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            path = nodeid.partition("::")[0]
            if path.endswith(JOBS_ON_SPARK):
                return "jobs on spark"
            return "data on spark" if path.endswith("_on_spark.py") else path

    # The mark xdist_group has no effect with pytest 9.2 and xdist 3.8.
    return TwoJvms(config, log) if config.getvalue("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def etcd_node():
    """Run one etcd for the whole run, or use that of RINK_TEST_ETCD."""
    with local_etcd() as node:
        yield node


@pytest.fixture(scope="session")
def etcd_url(etcd_node):
    """Return the endpoint of the etcd."""
    return etcd_node.endpoint


@pytest.fixture
def prefix():
    """Return a key prefix that no other test uses."""
    return f"test-{uuid.uuid4().hex}/"


class ThreeNodes:
    """Run a cluster for one file."""

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
    """Return a cluster whose three nodes run and hold the same data.

    It has a leader when a test begins.
    """
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
    """Lay wires to servers; remove them in teardown."""
    wires = []

    def wire_to(node, host="127.0.0.1", port=None):
        wires.append(Wire(node.endpoint, host, port))
        return wires[-1]

    yield wire_to
    for wire in wires:
        wire.close()
