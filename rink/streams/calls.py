"""Runs scripts in Redis. What is asked for while others are under way goes in one pipeline.

So sixty-four partitions that change hands cost a few requests on one connection, and a busy worker's
commits share theirs. On a cluster each goes to its node by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import attrs
from redis import exceptions as of_redis
from redis.asyncio import RedisCluster

from rink.streams.clients import AnyRedis
from rink.streams.endings import end
from rink.streams.scripts import Script, script
from rink.streams.sizes import slice_of


@attrs.frozen(eq=False)
class _Call:
    script: Script
    given: tuple[Any, ...]
    size: int
    answer: asyncio.Future[Any]

    def evalsha(self) -> tuple[Any, ...]:
        return ("EVALSHA", self.script.sha, *self.given)

    def eval(self) -> tuple[Any, ...]:
        return ("EVAL", self.script.text, *self.given)


class Calls:
    """Runs scripts on one client; belongs to one event loop.

    Args:
        redis: the client.
        most_bytes: about how many bytes of arguments go in one pipeline; one call at least.
    """

    def __init__(self, redis: AnyRedis, most_bytes: int) -> None:
        self._redis = redis
        self._most_bytes = most_bytes
        self._queue: list[_Call] = []
        self._task: asyncio.Task[None] | None = None

    async def run(self, name: str, keys: Sequence[str], given: Sequence[Any], size: int = 0) -> Any:
        """Run a script of ours and return its reply; raises what redis-py raises."""
        answer = asyncio.get_running_loop().create_future()
        self._queue.append(_Call(script(name), (len(keys), *keys, *given), size, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush())
        return await answer

    async def close(self) -> None:
        """Cancel the running requests, and fail the calls that wait.

        This includes requests of cancelled callers: one could open a connection after the close.
        """
        if self._task is not None:
            await end([self._task])
        for call in self._queue:
            if not call.answer.done():
                call.answer.set_exception(of_redis.ConnectionError("the client was closed"))
        self._queue.clear()

    async def _flush(self) -> None:
        await asyncio.sleep(0)  # calls of the same turn of the loop join the batch
        while self._queue:
            sizes = (call.size for call in self._queue)
            batch = self._queue[: slice_of(sizes, self._most_bytes, len(self._queue))]
            replies = await self._send(batch)
            del self._queue[: len(batch)]  # not earlier: `close` must find them
            for call, reply in zip(batch, replies, strict=True):
                if call.answer.done():  # its caller was cancelled
                    continue
                if isinstance(reply, BaseException):
                    call.answer.set_exception(reply)
                else:
                    call.answer.set_result(reply)

    async def _send(self, batch: list[_Call]) -> list[Any]:
        replies = await self._execute([call.evalsha() for call in batch])
        unknown = [
            at for at, reply in enumerate(replies) if isinstance(reply, of_redis.NoScriptError)
        ]
        if unknown:  # a server that was started since, or another one; EVAL makes it known there
            again = await self._execute([batch[at].eval() for at in unknown])
            for at, reply in zip(unknown, again, strict=True):
                replies[at] = reply
        return replies

    async def _execute(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        if isinstance(self._redis, RedisCluster) or len(commands) == 1:
            return await self._one_by_one(commands)
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                # Take errors as replies: redis-py 6.0 to 7.0 loses the server's message when it raises here.
                return list(await pipeline.execute(raise_on_error=False))
        except (of_redis.DataError, UnicodeError, TypeError):  # one cannot be sent: the others can
            return await self._one_by_one(commands)
        except Exception as error:  # the connection: whether they were carried out is not known
            return [error] * len(commands)

    async def _one_by_one(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        asked = [self._redis.execute_command(*command) for command in commands]
        return list(await asyncio.gather(*asked, return_exceptions=True))
