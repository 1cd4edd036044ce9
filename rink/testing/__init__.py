"""Test code that uses Rink: servers, an etcd in memory, virtual time.

This package imports neither pytest nor testcontainers nor redis.
"""

from typing import TYPE_CHECKING

from rink._lazy import named
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

if TYPE_CHECKING:
    from rink.testing.memory.cluster import MemoryCluster
    from rink.testing.memory.fake_redis import MemoryRedis
    from rink.testing.virtual import VirtualTime, virtual_time
else:
    __getattr__, __dir__ = named(
        __name__,
        {
            "MemoryCluster": "rink.testing.memory.cluster",
            "MemoryRedis": "rink.testing.memory.fake_redis",
            "VirtualTime": "rink.testing.virtual",
            "virtual_time": "rink.testing.virtual",
        },
        extra="testing",
    )

__all__ = [
    "EtcdCluster", "EtcdNode", "MemoryCluster", "MemoryRedis", "Place", "RedisCluster",
    "RedisNode", "RedisPair", "RedisServerError", "RedisServerUnavailable", "TlsFiles",
    "VirtualTime", "etcd_cluster", "local_etcd", "local_redis", "redis_cluster", "redis_pair",
    "virtual_time",
]  # fmt: skip
