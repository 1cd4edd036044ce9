"""Help for testing with Rink, for our tests and for our users'.

`local_etcd` and `etcd_cluster` run real servers, see `rink.testing.etcd_server.local`; `local_redis`,
`redis_cluster` and `redis_pair` run those of Redis, see `rink.testing.redis_server.local`. Neither pytest
nor testcontainers nor redis is imported with this package.
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
    RedisUnavailable,
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
    "RedisUnavailable",
    "TlsFiles",
    "etcd_cluster",
    "local_etcd",
    "local_redis",
    "redis_cluster",
    "redis_pair",
]
