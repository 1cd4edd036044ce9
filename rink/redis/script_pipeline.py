"""Run Lua scripts on asyncio, many in one request.

Calls that arrive during a request share the next pipeline. So a handover of 64 partitions costs a
few requests on one connection, and the commits of a busy worker share requests. On a cluster each
call goes to its node by itself.
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


@attrs.define(eq=False)
class ScriptPipeline:
    """Run scripts on one client, for one event loop.

    One request has about `max_bytes` of blobs at most, but at least one call.
    """

    _redis: AnyRedis
    _max_bytes: int
    _queue: list[tuple[ScriptCall, asyncio.Future[Any]]] = attrs.field(init=False, factory=list)
    _task: asyncio.Task[None] | None = attrs.field(init=False, default=None)

    async def run(self, call: ScriptCall) -> Any:
        """Run a script and return its reply; raise the errors of redis-py."""
        reply = asyncio.get_running_loop().create_future()
        self._queue.append((call, reply))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush())
        return await reply

    async def close(self) -> None:
        """Cancel the running request, and fail the calls that wait.

        A call whose caller was cancelled could open a connection after the close.
        """
        if self._task is not None:
            await end([self._task])
        for _, reply in self._queue:
            if not reply.done():
                reply.set_exception(of_redis.ConnectionError("the client was closed"))
        self._queue.clear()

    async def _flush(self) -> None:
        await asyncio.sleep(0)  # calls of the same turn of the event loop join the batch
        while self._queue:
            sizes = (sum(map(len, call.blobs)) for call, _ in self._queue)
            batch = self._queue[: batch_length(sizes, self._max_bytes, len(self._queue))]
            answers = await self._run([call for call, _ in batch])
            # A batch stays in the queue until it is answered, since `close` must find its calls.
            del self._queue[: len(batch)]
            for (_, reply), answer in zip(batch, answers, strict=True):
                if reply.done():  # its caller was cancelled
                    continue
                if isinstance(answer, BaseException):
                    reply.set_exception(answer)
                else:
                    reply.set_result(answer)

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
                # Get errors as replies, since redis-py 6.0 to 7.0 loses the message if it raises.
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

    Both limits hold, except that a first item that exceeds `max_bytes` goes by itself.
    """
    count = total = 0
    for size in sizes:
        total += size
        if count == max_count or (count and total > max_bytes):
            break
        count += 1
    return count
