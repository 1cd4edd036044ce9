"""Blocking clients of redis-py's, which guards, and source and sink of Spark, speak through."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, cast

import redis
from redis.connection import AbstractConnection
from redis.retry import Retry

from rink.errors import ConfigError
from rink.redis.error_map import reading
from rink.redis.scripts import Command, ScriptCall, run

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
        ConfigError: it is no such URL.
    """
    with reading("redis", url):
        return redis.Redis.from_url(
            url,
            socket_timeout=ANSWERS_WITHIN_S,
            socket_connect_timeout=ANSWERS_WITHIN_S,
            retry=retry,
        )


def checked(made: object, who: str) -> Client:
    """Return what a user's function made.

    Args:
        made: by the function.
        who: was told of the function, for messages.

    Raises:
        ConfigError: it is no blocking client, or one that would wait for a silent server without end.
    """
    if not isinstance(made, redis.Redis | redis.RedisCluster):
        raise ConfigError(
            f"{who} made {made!r}: it must return a blocking client of redis-py's, a redis.Redis or RedisCluster"
        )
    if any(_waits_without_end(one) for one in map(settings_of, [made, *_sentinels(made)])):
        raise ConfigError(
            f"{who} made a client without socket_timeout, which would wait for a silent server for ever: "
            f"give it one, such as socket_timeout={ANSWERS_WITHIN_S:g}; a Sentinel, too"
        )
    return made


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


def run_scripts(client: Client, calls: Sequence[ScriptCall]) -> list[Any]:
    """Run scripts and return their replies: in one round trip, or one by one on a cluster.

    If a script fails, the others may have been carried out; the first error is raised.

    Raises:
        redis.RedisError, OSError: as redis-py raises them.
    """
    steps = run(calls)
    commands = next(steps)
    while True:
        replies = _execute(client, commands)
        try:
            commands = steps.send(replies)
        except StopIteration as result:
            for reply in result.value:
                if isinstance(reply, BaseException):
                    raise reply from None
            return list(result.value)


def _execute(client: Client, commands: Sequence[Command]) -> list[Any]:
    """Return the replies, with the errors of the server among them."""
    if isinstance(client, redis.RedisCluster) or len(commands) == 1:
        return [_reply(client, command) for command in commands]
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        return list(pipeline.execute(raise_on_error=False))


def _reply(client: Client, command: Command) -> Any:
    try:
        return cast("Any", client).execute_command(*command)
    except redis.ResponseError as error:
        return error


def close_idle(client: Client) -> None:
    """Close the idle connections of a client, also to Sentinels and cluster nodes.

    `RedisCluster.close` leaves the connections to nodes open if `from_url` made the client.
    `Redis.close` leaves the connections to Sentinels open.
    """
    if isinstance(client, redis.RedisCluster):
        nodes = [node.redis_connection for node in client.get_nodes()]  # type: ignore[no-untyped-call]
        clients = [node for node in nodes if node is not None]
    else:
        clients = [client, *_sentinels(client)]
    for each in clients:
        each.connection_pool.disconnect(inuse_connections=False)


def _waits_without_end(settings: dict[str, Any]) -> bool:
    # redis-py 8 has a default, older ones have none.
    default = inspect.signature(AbstractConnection).parameters["socket_timeout"].default
    return settings.get("socket_timeout", default) is None


def _sentinels(client: Client) -> list[redis.Redis]:
    if isinstance(client, redis.RedisCluster):
        return []
    manager = getattr(client.connection_pool, "sentinel_manager", None)
    return list(manager.sentinels) if manager else []
