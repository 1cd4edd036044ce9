"""Run consumers in processes, on the real etcd of the run."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("partitions_real_support")

from partitions_real_support import Work  # noqa: E402 - needs the path above

from rink.testing import local_etcd  # noqa: E402


@pytest.fixture
def work(etcd_url, prefix):
    """Make a topic and the processes that work on it; end all in teardown."""
    made = Work(etcd_url, prefix)
    yield made
    made.close()


@pytest.fixture
def work_alone():
    """Make a `work` on an etcd of its own, which the test may freeze."""
    with local_etcd(fsync=False) as node:
        made = Work(node.endpoint, "rink/")
        yield made, node
        made.close()
