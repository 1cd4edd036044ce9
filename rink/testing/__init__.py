"""Help for testing with Rink, for our tests and for our users'.

`local_etcd` and `etcd_cluster` run real servers, see `rink.testing.servers`. Neither pytest nor
testcontainers is imported with this package.
"""

from rink.testing.servers import EtcdCluster, EtcdNode, Place, TlsFiles, etcd_cluster, local_etcd

__all__ = ["EtcdCluster", "EtcdNode", "Place", "TlsFiles", "etcd_cluster", "local_etcd"]
