"""Check and drive the blocking clients of guards and of Spark."""

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

BlockingRedis = redis.Redis | redis.RedisCluster
"""A blocking client of redis-py for one server, for Sentinel, or for a cluster."""

ANSWER_TIMEOUT_S = 10.0
"""The timeout of connecting and of each answer, unless the URL has a socket_timeout."""


def client_of(url: str, retry: Retry) -> redis.Redis:
    """Return a client of one server; settings in the URL win.

    Raises:
        ConfigError: redis-py cannot read the URL.
    """
    with reading("redis", url):
        return redis.Redis.from_url(
            url, socket_timeout=ANSWER_TIMEOUT_S, socket_connect_timeout=ANSWER_TIMEOUT_S,
            retry=retry,
        )  # fmt: skip


def checked(client: object, setting: str) -> BlockingRedis:
    """Return the client that a setting's function made, or raise.

    Raises:
        ConfigError: the result is no blocking client, or a client without a timeout.
    """
    if not isinstance(client, redis.Redis | redis.RedisCluster):
        raise ConfigError(
            f"{setting} made {client!r}: it must return a blocking client of redis-py, a "
            "redis.Redis or a RedisCluster"
        )
    if any(map(_has_no_timeout, map(settings_copy_of, [client, *_sentinels(client)]))):
        raise ConfigError(
            f"{setting} made a client without socket_timeout, which would wait for a silent server "
            f"for ever: set socket_timeout={ANSWER_TIMEOUT_S:g}, for example, also for Sentinels"
        )
    return client


def settings_copy_of(client: BlockingRedis) -> dict[str, Any]:
    """Return a copy of the settings of a client's connections."""
    if isinstance(client, redis.RedisCluster):
        return dict(client.nodes_manager.connection_kwargs)
    return dict(client.connection_pool.connection_kwargs)


def server_of(client: BlockingRedis) -> str:
    """Return the address of a client's Redis, for messages."""
    if isinstance(client, redis.RedisCluster):
        nodes = client.get_nodes()  # type: ignore[no-untyped-call]
        return "a cluster of " + ", ".join(str(node.name) for node in nodes)
    settings = settings_copy_of(client)
    if "path" in settings:
        return str(settings["path"])
    return f"{settings.get('host', 'its Sentinel')}:{settings.get('port', '')}".rstrip(":")


def run_scripts(client: BlockingRedis, calls: Sequence[ScriptCall]) -> list[Any]:
    """Run scripts in one round trip, and return their replies.

    On a cluster they run one by one. If a script fails, the others may have been carried out. The
    first error is raised.

    Raises:
        redis.RedisError, OSError: a script failed, or Redis could not be reached.
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


def _execute(client: BlockingRedis, commands: Sequence[Command]) -> list[Any]:
    """Return the replies, including errors of the server."""
    if isinstance(client, redis.RedisCluster) or len(commands) == 1:
        return [_reply(client, command) for command in commands]
    with client.pipeline(transaction=False) as pipeline:
        for command in commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        return list(pipeline.execute(raise_on_error=False))


def _reply(client: BlockingRedis, command: Command) -> Any:
    try:
        return cast("Any", client).execute_command(*command)
    except redis.ResponseError as error:
        return error


def close_idle(client: BlockingRedis) -> None:
    """Close a client's idle connections, including Sentinels and nodes.

    `RedisCluster.close` leaves the connections to nodes open if `from_url` made the client.
    `Redis.close` leaves the connections to Sentinels open.
    """
    if isinstance(client, redis.RedisCluster):
        nodes = client.get_nodes()  # type: ignore[no-untyped-call]
        connected = [node.redis_connection for node in nodes]
        clients = [each for each in connected if each is not None]
    else:
        clients = [client, *_sentinels(client)]
    for each in clients:
        each.connection_pool.disconnect(inuse_connections=False)


def _has_no_timeout(settings: dict[str, Any]) -> bool:
    # redis-py 8 has a default timeout; older versions have none.
    default = inspect.signature(AbstractConnection).parameters["socket_timeout"].default
    return settings.get("socket_timeout", default) is None


def _sentinels(client: BlockingRedis) -> list[redis.Redis]:
    if isinstance(client, redis.RedisCluster):
        return []
    manager = getattr(client.connection_pool, "sentinel_manager", None)
    return list(manager.sentinels) if manager else []
