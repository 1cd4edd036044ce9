"""Keep an etcd in memory for tests: it keeps etcd's promises, and has faults on command."""

from rink.testing.memory.cluster import MemoryCluster

__all__ = ["MemoryCluster"]
