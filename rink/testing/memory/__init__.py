"""Keep an etcd in this process, for tests without a server: the same promises, and faults on command."""

from rink.testing.memory.cluster import MemoryCluster

__all__ = ["MemoryCluster"]
