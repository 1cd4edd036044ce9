"""Clients of redis-py's, which users make with settings of their own: what is asked of them, and what is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from rink.errors import ConfigError
from rink.streams.packing import pack_in_c

AnyRedis = Redis | RedisCluster
"""What redis-py has for one server, for Sentinel, and for a cluster."""

Connect = Callable[[], AnyRedis]
"""Makes a client of redis-py's, with whatever settings."""

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
    """Close its connections, to its Sentinels too, which redis-py leaves open."""
    await redis.aclose()
    if isinstance(redis, Redis):
        for sentinel in _sentinels(redis):
            await sentinel.aclose()


def _sentinels(redis: Redis) -> list[Redis]:
    manager = getattr(redis.connection_pool, "sentinel_manager", None)
    return list(manager.sentinels) if manager else []
