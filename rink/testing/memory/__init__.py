"""Run an etcd in memory for tests, with faults on command."""

from rink.testing.memory.cluster import MemoryCluster

__all__ = ["MemoryCluster"]
