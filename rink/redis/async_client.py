"""Check and prepare the asyncio clients that users make with redis-py."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from rink._tuning import pack_in_c, writers_of
from rink.redis.reply_text import refuse_decoding

log = logging.getLogger("rink.redis")

AnyRedis = Redis | RedisCluster
"""An asyncio client of redis-py for one server, for Sentinel, or for a cluster."""

Connect = Callable[[], AnyRedis]
"""A function that makes a redis-py client, with any settings."""

_CLOSE_TIMEOUT_S = 1.0

ANSWER_TIMEOUT_S = 5.0
"""The timeout of an answer if the client has no `socket_timeout`, as in redis-py 8."""


def prepare(redis: AnyRedis) -> float:
    """Set a client up for Rink: no retries, a timeout, requests packed in C.

    The client's retries are switched off, since a reader must learn of each reconnect. All other
    callers repeat their own requests.

    Returns:
        The seconds that the client waits for an answer.

    Raises:
        ConfigError: the client decodes answers to text, but records are bytes.
    """
    settings = live_settings_of(redis)
    refuse_decoding(settings)
    redis.set_retry(Retry(NoBackoff(), 0))
    all_settings = [settings]
    if isinstance(redis, RedisCluster):
        nodes = redis.nodes_manager.startup_nodes.values()
        all_settings += [node.connection_kwargs for node in nodes]
    else:
        pack_in_c(redis.connection_pool)
        all_settings += [live_settings_of(sentinel) for sentinel in _sentinels(redis)]
    for kwargs in all_settings:
        if kwargs.get("socket_timeout") is None:
            kwargs["socket_timeout"] = ANSWER_TIMEOUT_S
    return float(settings["socket_timeout"])


def live_settings_of(redis: AnyRedis) -> dict[str, Any]:
    """Return the settings of a client's new connections, not a copy of them."""
    if isinstance(redis, RedisCluster):
        return redis.connection_kwargs
    kwargs: dict[str, Any] = redis.connection_pool.connection_kwargs
    return kwargs


def server_of(redis: AnyRedis) -> str:
    """Return the address of a client's Redis, for messages."""
    if isinstance(redis, RedisCluster):
        # Before the client is initialized, only its startup nodes are known.
        nodes = redis.get_nodes() or redis.nodes_manager.startup_nodes.values()
        return "a cluster of " + ", ".join(str(node.name) for node in nodes)
    settings = live_settings_of(redis)
    if "path" in settings:
        return str(settings["path"])
    return f"{settings.get('host', 'its Sentinel')}:{settings.get('port', '')}".rstrip(":")


async def close(redis: AnyRedis) -> None:
    """Close a client's connections, including connections to Sentinels.

    redis-py leaves the connections to Sentinels open. An unavailable server raises no error.
    Over TLS, redis-py waits until the server confirms the end of a connection, and raises if the
    server does not. Then the connection is aborted.
    """
    sentinels = _sentinels(redis) if isinstance(redis, Redis) else []
    for client in (redis, *sentinels):
        writers = _writers(client)
        try:
            async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                await client.aclose()
        except (RedisError, OSError, TimeoutError) as error:
            log.debug("Redis at %s did not confirm the close: %s", server_of(client), error)
            for writer in writers:
                writer.transport.abort()
            # The event loop drops aborted connections in its next turn, and may be closed after it.
            await asyncio.sleep(0)


def _writers(redis: AnyRedis) -> list[asyncio.StreamWriter]:
    """Return the writers of a client's connections."""
    if isinstance(redis, RedisCluster):
        return writers_of(*redis.get_nodes())
    return writers_of(redis.connection_pool)


def _sentinels(redis: Redis) -> list[Redis]:
    manager = getattr(redis.connection_pool, "sentinel_manager", None)
    return list(manager.sentinels) if manager else []
