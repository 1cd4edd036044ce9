"""Keep a Redis in this process, for tests without a server.

fakeredis runs Rink's own Lua scripts. `tests/streams/steps_contract.py` holds it to what a real
Redis does. It has no memory limit, no disk, no replicas and no cluster: tests of those need a real
one.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from rink.distribution import install_command
from rink.errors import ConfigError

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
    """A Redis in this process.

    with MemoryRedis() as redis:
        app = App("shop", redis=redis.client)
    """

    def __init__(self) -> None:
        self._server = fakeredis.FakeServer(version=_VERSION)

    def client(self) -> _AsyncClient:
        """Return a client for asyncio; `App(redis=...)` takes this method."""
        return _AsyncClient(server=self._server)

    def blocking_client(self) -> _BlockingClient:
        """Return a blocking client, as guards and Spark take one."""
        return _BlockingClient(server=self._server, socket_timeout=10.0)


def _known(pool: Any, command: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a command that fakeredis understands.

    Its Lua does not know the first line of a script, which has the flags. Redis knows a script by
    the SHA-1 of its whole text, so the text without flags is noted under that.
    """
    if command[:1] != ("EVAL",):
        return command
    name, text, *rest = command
    text = text.encode() if isinstance(text, str) else text
    plain = _FLAGS.sub(b"--", text)
    cache = pool.connection_kwargs["server"].script_cache
    cache[hashlib.sha1(text).hexdigest().encode()] = plain
    return name, plain, *rest


class _AsyncPipeline(redis.asyncio.client.Pipeline):
    def execute_command(self, *args: Any, **options: Any) -> Any:
        return super().execute_command(*_known(self.connection_pool, args), **options)


class _AsyncClient(fakeredis.FakeAsyncRedis):
    async def execute_command(self, *args: Any, **options: Any) -> Any:
        known = _known(self.connection_pool, args)
        return await super().execute_command(*known, **options)  # type: ignore[no-untyped-call]

    def pipeline(
        self, transaction: bool = True, shard_hint: str | None = None
    ) -> redis.asyncio.client.Pipeline:
        """Return a pipeline that sends scripts as `execute_command` does."""
        return _AsyncPipeline(
            self.connection_pool, self.response_callbacks, transaction, shard_hint
        )

    async def info(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Return what Rink reads of INFO, which fakeredis does not have."""
        return dict(_INFO)


class _BlockingPipeline(redis.client.Pipeline):
    def execute_command(self, *args: Any, **options: Any) -> Any:
        known = _known(self.connection_pool, args)
        return super().execute_command(*known, **options)  # type: ignore[no-untyped-call]


class _BlockingClient(fakeredis.FakeRedis):
    def execute_command(self, *args: Any, **options: Any) -> Any:
        known = _known(self.connection_pool, args)
        return super().execute_command(*known, **options)  # type: ignore[no-untyped-call]

    def pipeline(
        self, transaction: bool = True, shard_hint: str | None = None
    ) -> redis.client.Pipeline:
        """Return a pipeline that sends scripts as `execute_command` does."""
        return _BlockingPipeline(
            self.connection_pool, self.response_callbacks, transaction, shard_hint
        )
