"""Blocking clients of redis-py's, which guards, and source and sink of Spark, speak through."""

from __future__ import annotations

from typing import Any

import redis
from redis.retry import Retry

Client = redis.Redis | redis.RedisCluster
"""What redis-py has for one server, for Sentinel, and for a cluster."""

ANSWERS_WITHIN_S = 10.0
"""A server that is asked for so long is taken for gone, unless the URL has a socket_timeout."""


def client_of(url: str, retry: Retry) -> redis.Redis:
    """Return a client of one server; what the URL says of its settings counts.

    Args:
        url: redis://, rediss:// or unix://.
        retry: how often it asks again by itself.

    Raises:
        ValueError: it is no such URL.
    """
    return redis.Redis.from_url(
        url,
        socket_timeout=ANSWERS_WITHIN_S,
        socket_connect_timeout=ANSWERS_WITHIN_S,
        retry=retry,
    )


def settings_of(client: Client) -> dict[str, Any]:
    """Return what its connections are made with: a copy."""
    if isinstance(client, redis.RedisCluster):
        return dict(client.nodes_manager.connection_kwargs)
    return dict(client.connection_pool.connection_kwargs)


def server_of(client: Client) -> str:
    """Return where it looks for Redis, for messages."""
    if isinstance(client, redis.RedisCluster):
        return "a cluster of " + ", ".join(str(node.name) for node in client.get_nodes())  # type: ignore[no-untyped-call]
    known = settings_of(client)
    if "path" in known:
        return str(known["path"])
    return f"{known.get('host', 'its Sentinel')}:{known.get('port', '')}".rstrip(":")
