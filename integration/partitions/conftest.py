"""Processes that consume, on the real etcd of the run."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("partitions_real_support")

from partitions_real_support import Work  # noqa: E402 - needs the path above

from rink.testing import local_etcd  # noqa: E402


@pytest.fixture
def work(etcd_url, prefix):
    """A topic of this test's own, and the processes that work it through; all are gone in the end."""
    made = Work(etcd_url, prefix)
    yield made
    made.close()


@pytest.fixture
def work_alone():
    """As `work`, on an etcd of the test's own, to be frozen."""
    with local_etcd(fsync=False) as node:
        made = Work(node.endpoint, "rink/")
        yield made, node
        made.close()
