"""Real Redis servers for tests and demos: started, broken and removed from Python.

    with local_redis() as redis:              # one server, data in a temporary folder
        client = Redis.from_url(redis.url)
        redis.kill(); redis.start()

    with redis_cluster(3) as cluster:         # three masters, all slots served
        cluster.node_of("orders").freeze()

    with redis_pair(sentinel=True) as pair:   # a master, its replica, and who promotes that
        pair.cut(); pair.failover()

The server comes from, in this order: an address given (`url=` or RINK_TEST_REDIS, for `local_redis`
only), `redis-server` on the PATH. Servers listen on loopback only. Whatever happens to the test run,
nothing stays behind: see `servers_guard`. Deliberately absent: the redis package (an extra), so that
a server's health is what it says itself; and containers, since redis-server is in every distribution.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rink.testing.redis_server.cluster import RedisCluster, formed
from rink.testing.redis_server.node import RedisNode
from rink.testing.redis_server.pair import RedisPair, redis_pair
from rink.testing.redis_server.resp import RedisServerError, RedisUnavailable
from rink.testing.redis_server.start import (
    RedisSettings,
    given_redis,
    redis_folder,
    started_redises,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rink.testing.process.server import TlsFiles

__all__ = [
    "RedisCluster",
    "RedisNode",
    "RedisPair",
    "RedisServerError",
    "RedisUnavailable",
    "local_redis",
    "redis_cluster",
    "redis_pair",
]


@contextlib.contextmanager
def local_redis(
    *,
    url: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    appendonly: bool = True,
    appendfsync: str = "everysec",
    password: str | None = None,
    acl: tuple[str, ...] = (),
    tls: TlsFiles | None = None,
    maxmemory: int | str | None = None,
    extra_args: tuple[str, ...] = (),
    deadline: float = 30.0,
) -> Iterator[RedisNode]:
    """Run one Redis for as long as the `with` lasts.

    Args:
        url: use this server instead, and only `tls` of what follows; default RINK_TEST_REDIS.
        data_dir: where the data stays, with its port; None is a temporary folder.
        appendonly: keep an append-only file, so that a kill loses nothing that was acknowledged;
            False is snapshots only: a kill loses what came after the last, `stop()` takes one.
        appendfsync: "always", "everysec" or "no": what a crash of the machine may lose.
        password: of the default user, which then needs one; it is part of the node's `url`.
        acl: further users, each as in a file of Redis' users without the word `user`:
            "worker on >secret ~orders:* &* +@all". "default off" switches the default user off.
        tls: certificates for the port, which then speaks TLS only; None is plain.
        maxmemory: bytes, or as Redis writes it ("100mb"); None is no limit.
        extra_args: more settings for the server: ("--maxmemory-policy", "allkeys-lru").
        deadline: seconds to wait for the server, on each start and stop.

    Raises:
        ConfigError: there is no redis-server to be found, or a setting cannot be used.
        RedisUnavailable: the server did not become healthy; shows the last lines of its log.
    """
    given = url or os.environ.get("RINK_TEST_REDIS")
    if given:
        yield given_redis(given, tls)
        return
    settings = RedisSettings(
        data_dir=Path(data_dir) if data_dir else None,
        appendonly=appendonly,
        appendfsync=appendfsync,
        password=password,
        acl=acl,
        tls=tls,
        maxmemory=maxmemory,
        extra_args=extra_args,
        deadline=deadline,
    )
    with redis_folder(1, settings.data_dir) as (folder, owner):
        yield started_redises(1, folder, owner, settings)[0]


@contextlib.contextmanager
def redis_cluster(
    size: int = 3,
    *,
    data_dir: str | os.PathLike[str] | None = None,
    appendonly: bool = True,
    appendfsync: str = "everysec",
    password: str | None = None,
    acl: tuple[str, ...] = (),
    node_timeout_ms: int = 2000,
    extra_args: tuple[str, ...] = (),
    deadline: float = 30.0,
) -> Iterator[RedisCluster]:
    """Run a Redis Cluster of masters for as long as the `with` lasts; all slots are served when it begins.

    The other arguments and the errors are those of `local_redis`, but that a cluster is never given.
    It needs Redis 7.0 or later.

    Args:
        size: how many masters; the slots are shared evenly, in their order.
        data_dir: as of `local_redis`.
        appendonly: as of `local_redis`.
        appendfsync: as of `local_redis`.
        password: as of `local_redis`, the same for all nodes.
        acl: as of `local_redis`, the same for all nodes.
        node_timeout_ms: milliseconds until a node that does not answer is held to have failed. The
            others then serve nothing, unless `extra_args` has ("--cluster-require-full-coverage", "no").
        extra_args: as of `local_redis`.
        deadline: as of `local_redis`, and for the cluster to form.
    """
    settings = RedisSettings(
        data_dir=Path(data_dir) if data_dir else None,
        appendonly=appendonly,
        appendfsync=appendfsync,
        password=password,
        acl=acl,
        extra_args=extra_args,
        deadline=deadline,
    )
    with redis_folder(size, settings.data_dir) as (folder, owner):
        yield formed(size, folder, owner, settings, node_timeout_ms)
