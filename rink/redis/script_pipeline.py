"""Run Lua scripts on asyncio, many in one request.

Calls that are made while others are under way share the next pipeline. So when 64 partitions change
hands, they cost a few requests on one connection, and the commits of a busy worker share theirs. On
a cluster each call goes to its node by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import attrs
from redis import exceptions as of_redis
from redis.asyncio import RedisCluster

from rink._cancel import end
from rink.redis.async_client import AnyRedis
from rink.redis.scripts import Command, ScriptCall, run


@attrs.frozen(eq=False)
class _Waiting:
    call: ScriptCall
    reply: asyncio.Future[Any]


class ScriptPipeline:
    """Runs scripts on one client; belongs to one event loop.

    Args:
        redis: the client.
        max_bytes: about how many bytes of blobs one pipeline has; at least one call goes in.
    """

    def __init__(self, redis: AnyRedis, max_bytes: int) -> None:
        self._redis = redis
        self._max_bytes = max_bytes
        self._queue: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None

    async def run(self, call: ScriptCall) -> Any:
        """Run a script and return its reply; raise what redis-py raises."""
        reply = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(call, reply))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush())
        return await reply

    async def close(self) -> None:
        """Cancel the running request, and fail the calls that wait.

        This includes calls whose callers were cancelled. Such a call could open a connection after
        the close.
        """
        if self._task is not None:
            await end([self._task])
        for waiting in self._queue:
            if not waiting.reply.done():
                waiting.reply.set_exception(of_redis.ConnectionError("the client was closed"))
        self._queue.clear()

    async def _flush(self) -> None:
        await asyncio.sleep(0)  # calls of the same turn of the event loop join the batch
        while self._queue:
            sizes = (sum(map(len, waiting.call.blobs)) for waiting in self._queue)
            batch = self._queue[: batch_length(sizes, self._max_bytes, len(self._queue))]
            replies = await self._run([waiting.call for waiting in batch])
            # A batch stays in the queue until it is answered: `close` must find its calls.
            del self._queue[: len(batch)]
            for waiting, reply in zip(batch, replies, strict=True):
                if waiting.reply.done():  # its caller was cancelled
                    continue
                if isinstance(reply, BaseException):
                    waiting.reply.set_exception(reply)
                else:
                    waiting.reply.set_result(reply)

    async def _run(self, calls: list[ScriptCall]) -> list[Any]:
        steps = run(calls)
        commands = next(steps)
        while True:
            replies = await self._execute(commands)
            try:
                commands = steps.send(replies)
            except StopIteration as result:
                return list(result.value)

    async def _execute(self, commands: list[Command]) -> list[Any]:
        if isinstance(self._redis, RedisCluster) or len(commands) == 1:
            return await self._one_by_one(commands)
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for command in commands:
                    pipeline.execute_command(*command)
                # Errors are taken as replies: redis-py 6.0 to 7.0 loses the message if it raises.
                return list(await pipeline.execute(raise_on_error=False))
        except (of_redis.DataError, UnicodeError, TypeError):
            # redis-py cannot encode one of the commands; the others can be sent.
            return await self._one_by_one(commands)
        except Exception as error:  # a broken connection: each command may have been carried out
            return [error] * len(commands)

    async def _one_by_one(self, commands: list[Command]) -> list[Any]:
        requests = [self._redis.execute_command(*command) for command in commands]
        return list(await asyncio.gather(*requests, return_exceptions=True))


def batch_length(sizes: Iterable[int], max_bytes: int, max_count: int) -> int:
    """Return how many of the first items go in one request: at least one.

    Both limits hold, but a first item that exceeds `max_bytes` goes by itself.
    """
    count = total = 0
    for size in sizes:
        total += size
        if count == max_count or (count and total > max_bytes):
            break
        count += 1
    return count
