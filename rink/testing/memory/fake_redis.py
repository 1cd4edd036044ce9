"""Run a Redis in this process, for tests without a server.

fakeredis runs Rink's own Lua scripts. `tests/streams/steps_contract.py` compares it with a real
Redis. It has no memory limit, disk, replicas or cluster.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from rink.errors import ConfigError
from rink.pip_distribution import install_command

try:
    import fakeredis
    import redis.asyncio.client
    import redis.client
except ModuleNotFoundError as error:
    raise ConfigError(f"a Redis in memory needs fakeredis: {install_command('testing')}") from error

_VERSION = (7, 4)
_INFO = {"redis_version": ".".join(map(str, _VERSION)), "maxmemory": 0, "evicted_keys": 0}
_FLAGS = re.compile(rb"^#!lua[^\n]*")


class MemoryRedis:
    """Hold a Redis in this process; its data end with this object.

    redis = MemoryRedis()
    app = App("shop", redis=redis.client)
    """

    def __init__(self) -> None:
        self._server = fakeredis.FakeServer(version=_VERSION)

    def client(self) -> _AsyncClient:
        """Return a client for asyncio; `App(redis=...)` takes this method."""
        return _AsyncClient(server=self._server)

    def blocking_client(self) -> _BlockingClient:
        """Return a blocking client, for guards and Spark."""
        return _BlockingClient(server=self._server, socket_timeout=10.0)


class _KnownCommands:
    """Send only commands that fakeredis understands."""

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command. Send a script without its flags.

        fakeredis' Lua cannot read the flags in the first line of a script. Clients call a script by
        the SHA-1 of its whole text, so the text without flags is stored under that SHA-1.
        """
        if args[:1] == ("EVAL",):
            name, text, *rest = args
            text = text.encode() if isinstance(text, str) else text
            plain = _FLAGS.sub(b"--", text)
            pool: Any = self.connection_pool  # type: ignore[attr-defined]
            cache = pool.connection_kwargs["server"].script_cache
            cache[hashlib.sha1(text).hexdigest().encode()] = plain
            args = name, plain, *rest
        return super().execute_command(*args, **options)  # type: ignore[misc]


class _AsyncPipeline(_KnownCommands, redis.asyncio.client.Pipeline):  # type: ignore[misc]
    pass


class _BlockingPipeline(_KnownCommands, redis.client.Pipeline):
    pass


class _Client(_KnownCommands):
    _pipeline_class: Any

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Any:
        """Return a pipeline that sends scripts as `execute_command` does."""
        own: Any = self
        pool, callbacks = own.connection_pool, own.response_callbacks
        return self._pipeline_class(pool, callbacks, transaction, shard_hint)


class _AsyncClient(_Client, fakeredis.FakeAsyncRedis):  # type: ignore[misc]
    _pipeline_class = _AsyncPipeline

    async def info(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return the fields of INFO that Rink reads; fakeredis has no INFO."""
        return dict(_INFO)


class _BlockingClient(_Client, fakeredis.FakeRedis):
    _pipeline_class = _BlockingPipeline
