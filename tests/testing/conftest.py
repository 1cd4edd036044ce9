"""An etcd in memory that does nothing before it is told, on virtual time."""

import pytest
from virtual_clock import VirtualClock

pytest.register_assert_rewrite(
    "etcd_contract", "etcd_contract_streams", "etcd_world", "memory_support"
)

from rink.testing.memory.cluster import MemoryCluster  # noqa: E402 - after what is to be rewritten


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def cluster(clock):
    """Pumped and on virtual time: no thread, so every test is a fixed sequence."""
    with MemoryCluster(clock=clock, pumped=True) as cluster:
        yield cluster


@pytest.fixture
def etcd(cluster):
    return cluster.client("one")
