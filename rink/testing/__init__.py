"""Test code that uses Rink: servers, an etcd in memory, virtual time.

This package imports neither pytest nor testcontainers nor redis.
"""

from rink.testing.etcd_server.local import (
    EtcdCluster,
    EtcdNode,
    Place,
    TlsFiles,
    etcd_cluster,
    local_etcd,
)
from rink.testing.redis_server.local import (
    RedisCluster,
    RedisNode,
    RedisPair,
    RedisServerError,
    RedisServerUnavailable,
    local_redis,
    redis_cluster,
    redis_pair,
)

__all__ = [
    "EtcdCluster", "EtcdNode", "Place", "RedisCluster", "RedisNode", "RedisPair",
    "RedisServerError", "RedisServerUnavailable", "TlsFiles",
    "etcd_cluster", "local_etcd", "local_redis", "redis_cluster", "redis_pair",
]  # fmt: skip
