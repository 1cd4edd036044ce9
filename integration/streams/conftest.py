"""Give real servers to contracts that servers in memory pass as well."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "streams"))

from workers_support import RealServers


@pytest.fixture
def servers(rink_redis, etcd_url, prefix):
    return RealServers(rink_redis, etcd_url, prefix)
