"""Test code that uses Rink.

There are servers to start and break, an etcd in memory, and virtual time.

`local_etcd` and `etcd_cluster` run real etcd servers, see `rink.testing.etcd_server.local`.
`local_redis`, `redis_cluster` and `redis_pair` run real Redis servers, see
`rink.testing.redis_server.local`. This package imports neither pytest nor testcontainers nor redis.
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
    "EtcdCluster",
    "EtcdNode",
    "Place",
    "RedisCluster",
    "RedisNode",
    "RedisPair",
    "RedisServerError",
    "RedisServerUnavailable",
    "TlsFiles",
    "etcd_cluster",
    "local_etcd",
    "local_redis",
    "redis_cluster",
    "redis_pair",
]
