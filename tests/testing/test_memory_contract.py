"""Run the contract tests on the in-memory etcd."""

from __future__ import annotations

import pytest
from etcd_contract import *  # noqa: F403 - tests of calls
from etcd_contract_streams import *  # noqa: F403 - tests of streams
from etcd_world import World
from virtual_clock import VirtualClock

from rink.testing.memory.cluster import MemoryCluster


@pytest.fixture
def world():
    clock = VirtualClock()
    cluster = MemoryCluster(clock=clock)

    def pass_time(seconds):
        clock.seconds += seconds
        cluster.tick()

    with cluster:
        yield World(cluster.client(), cluster.client(), b"p/", cluster.compact, pass_time)
