"""Give an etcd in memory that is pumped and has a virtual clock."""

import pytest
from virtual_clock import VirtualClock

pytest.register_assert_rewrite(
    "etcd_contract", "etcd_contract_streams", "etcd_world", "memory_support"
)

from rink.testing.memory.cluster import MemoryCluster  # noqa: E402 - after the rewriting of asserts


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def cluster(clock):
    """Give a cluster without threads, so that every test is a fixed sequence."""
    with MemoryCluster(clock=clock, pumped=True) as cluster:
        yield cluster


@pytest.fixture
def etcd(cluster):
    return cluster.client("one")
