"""Start, break and remove real Redis servers, for tests and demos.

    with local_redis() as redis:              # one server, data in a temporary folder
        client = Redis.from_url(redis.url)
        redis.kill(); redis.start()

    with redis_cluster(3) as cluster:         # three masters, all slots served
        cluster.node_of("orders").freeze()

    with redis_pair(sentinel=True) as pair:   # a master, its replica, and a Sentinel
        pair.cut(); pair.failover()

`local_redis` takes the server at a given address (`url=` or RINK_TEST_REDIS), if there is one.
Otherwise the server is `redis-server` on the PATH. Servers listen on loopback only. They are
removed however the test run ends, see `rink.testing.process.reaper`. The extra `streams` installs
redis-py, which sends them commands.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rink.testing.redis_server.cluster import RedisCluster, formed
from rink.testing.redis_server.errors import RedisServerError, RedisServerUnavailable
from rink.testing.redis_server.node import RedisNode
from rink.testing.redis_server.pair import RedisPair, redis_pair
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
    "RedisCluster", "RedisNode", "RedisPair", "RedisServerError", "RedisServerUnavailable",
    "local_redis", "redis_cluster", "redis_pair",
]  # fmt: skip


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
        url: use this server instead of starting one; default RINK_TEST_REDIS. Of the other
            arguments, only `tls` then applies.
        data_dir: keep the data and the port in this folder; None is a temporary folder.
        appendonly: keep an append-only file, so that a kill loses no acknowledged write. With
            False there are only snapshots: a kill loses all writes after the last snapshot, and
            `stop()` takes one.
        appendfsync: "always", "everysec" or "no": what a crash of the machine may lose.
        password: the password of the default user, which is part of the node's `url`.
        acl: more users, each written as in an ACL file of Redis without the word `user`:
            "worker on >secret ~orders:* &* +@all". "default off" disables the default user.
        tls: certificates for the port, which then accepts only TLS; None disables TLS.
        maxmemory: bytes, or as Redis writes it ("100mb"); None is no limit.
        extra_args: more arguments for the server: ("--maxmemory-policy", "allkeys-lru").
        deadline: seconds to wait for the server, on each start and stop.

    Raises:
        ConfigError: redis-server or redis-py is missing, or an argument is invalid.
        RedisServerUnavailable: the server did not become healthy; shows the end of its log.
    """
    given_url = url or os.environ.get("RINK_TEST_REDIS")
    if given_url:
        yield given_redis(given_url, tls)
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
    """Run a Redis Cluster of masters for as long as the `with` lasts.

    All slots are served when the `with` begins. The `size` masters share them evenly, in their
    order. RINK_TEST_REDIS has no effect here. The cluster needs Redis 7.0 or later.

    A node counts as failed if it does not answer for `node_timeout_ms`. The other nodes then refuse
    all commands, unless `extra_args` has ("--cluster-require-full-coverage", "no"). See
    `local_redis` for the errors and the other arguments, which apply to each node.
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
