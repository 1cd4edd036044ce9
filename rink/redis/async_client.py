"""Clients of redis-py's, which users make with settings of their own: what is asked of them, and what is set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from rink.errors import ConfigError
from rink.redis.hiredis_packing import pack_in_c

log = logging.getLogger("rink.streams")

AnyRedis = Redis | RedisCluster
"""What redis-py has for one server, for Sentinel, and for a cluster."""

Connect = Callable[[], AnyRedis]
"""Makes a client of redis-py's, with whatever settings."""

_CLOSE_TIMEOUT_S = 1.0

ANSWERS_WITHIN_S = 5.0
"""So long an answer is waited for where the client has no `socket_timeout`; redis-py 8 has the same."""


def prepare(redis: AnyRedis) -> float:
    """Set what every client of ours has: no retries of its own, a bound for each wait, requests packed in C.

    Its retries are switched off since a reader must know of each reconnect, and everything else is asked again
    by who asked.

    Returns:
        The seconds that it waits for an answer.

    Raises:
        ConfigError: it gives text where records are bytes.
    """
    settings = settings_of(redis)
    if settings.get("decode_responses"):
        raise ConfigError(
            "the Redis client has decode_responses=True: records are bytes, so make it without"
        )
    redis.set_retry(Retry(NoBackoff(), 0))
    every = [settings]
    if isinstance(redis, RedisCluster):
        every += [node.connection_kwargs for node in redis.nodes_manager.startup_nodes.values()]
    else:
        pack_in_c(redis)
        every += [settings_of(sentinel) for sentinel in _sentinels(redis)]
    for one in every:
        if one.get("socket_timeout") is None:
            one["socket_timeout"] = ANSWERS_WITHIN_S
    return float(settings["socket_timeout"])


def settings_of(redis: AnyRedis) -> dict[str, Any]:
    """Return what its connections are made with from now on: the client's own, not a copy."""
    if isinstance(redis, RedisCluster):
        return redis.connection_kwargs
    kwargs: dict[str, Any] = redis.connection_pool.connection_kwargs
    return kwargs


def server_of(redis: AnyRedis) -> str:
    """Return where it looks for Redis, for messages."""
    if isinstance(redis, RedisCluster):
        # Before it is initialized, those that it was given.
        nodes = redis.get_nodes() or redis.nodes_manager.startup_nodes.values()
        return "a cluster of " + ", ".join(str(node.name) for node in nodes)
    known = settings_of(redis)
    if "path" in known:
        return str(known["path"])
    return f"{known.get('host', 'its Sentinel')}:{known.get('port', '')}".rstrip(":")


async def close(redis: AnyRedis) -> None:
    """Close its connections, to its Sentinels too, which redis-py leaves open.

    It raises nothing where a server is away. Over TLS redis-py waits until the server confirms the end of a connection,
    and raises if it does not. The connection is closed all the same.
    """
    others = _sentinels(redis) if isinstance(redis, Redis) else []
    for one in (redis, *others):
        writers = _writers(one)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await one.aclose()
        except (RedisError, OSError, TimeoutError) as error:
            log.debug("Redis at %s did not see its connections close: %s", server_of(one), error)
            for writer in writers:
                writer.transport.abort()
            await asyncio.sleep(
                0
            )  # the loop drops them in its next turn, and may be closed after it


def _writers(redis: AnyRedis) -> list[asyncio.StreamWriter]:
    """Return the writers of a client's connections.

    redis-py has no name for them, and forgets them when it closes the connections.
    """
    if isinstance(redis, RedisCluster):
        pools: list[Any] = [getattr(node, "_connections", ()) for node in redis.get_nodes()]
    else:
        pool = redis.connection_pool
        pools = [
            getattr(pool, "_available_connections", ()),
            getattr(pool, "_in_use_connections", ()),
        ]
    found = [getattr(one, "_writer", None) for connections in pools for one in connections]
    return [writer for writer in found if writer is not None]


def _sentinels(redis: Redis) -> list[Redis]:
    manager = getattr(redis.connection_pool, "sentinel_manager", None)
    return list(manager.sentinels) if manager else []
