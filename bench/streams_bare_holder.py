"""Hand partitions over with redis-py and gRPC alone.

It is a limit of `streams_handover`. It has no group, no lease, no token to wait for and no object
for each partition: one blocking XREAD and one pipeline of commits serve all. To leave, it ends its
loop, closes all partitions in one pipeline, and puts one key into etcd. The process that watches
this key takes all partitions in one pipeline, together with the first events.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
import threading
from collections.abc import Sequence
from typing import Any

from child import now, serve
from probe import connect, putter, watching
from redis.asyncio import Redis
from streams_bare import BLOCK_MS, COMMIT, pairs

from rink.etcd.proto import rinketcd_pb2 as pb

logging.basicConfig(level=logging.CRITICAL)
given = json.loads(sys.argv[1])
FIRST = 25
LONG_S = 60.0
TAKE = """
redis.call('HSET', KEYS[1], 'fence', '1', 'open', '1')
local offset = redis.call('HGET', KEYS[1], 'offset')
if not offset then
  offset = '0-0'
  redis.call('HSET', KEYS[1], 'offset', offset)
end
return {offset, redis.call('XRANGE', KEYS[2], '(' .. offset, '+', 'COUNT', ARGV[1])}
"""
CLOSE = "return redis.call('HSET', KEYS[1], 'open', '0')"

events: list[tuple[float, int, float]] = []  # processed at, partition, sent at
begins: list[tuple[float, int]] = []
ends: list[tuple[float, int]] = []
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()


class Holder:
    """Hold all partitions of these keys from a take to a close."""

    def __init__(self, keys: Sequence[str], numbers: Sequence[int]) -> None:
        self._numbers = dict(zip(keys, numbers, strict=True))
        self._positions: dict[str, str] = {}
        self._leaves = False
        self.has_taken = threading.Event()
        self.has_left = threading.Event()

    def leave(self) -> None:
        self._leaves = True

    async def run(self, redis: Redis) -> None:
        take, close, commit = [await redis.script_load(one) for one in (TAKE, CLOSE, COMMIT)]
        async with redis.pipeline(transaction=False) as pipeline:
            for key in self._numbers:
                pipeline.evalsha(take, 2, f"{key}:bare", key, FIRST)
            taken = await pipeline.execute()
        first = []
        for key, (offset, entries) in zip(self._numbers, taken, strict=True):
            self._positions[key] = offset.decode()
            first.append(
                (key, [(one, dict(zip(*[iter(of)] * 2, strict=True))) for one, of in entries])
            )
        begins.extend((now(), number) for number in self._numbers.values())
        self.has_taken.set()
        await self._process(redis, commit, first)
        while not self._leaves:
            found = pairs(await redis.xread(self._positions, count=FIRST, block=BLOCK_MS))
            await self._process(redis, commit, [(key.decode(), entries) for key, entries in found])
        ends.extend((now(), number) for number in self._numbers.values())
        async with redis.pipeline(transaction=False) as pipeline:
            for key in self._numbers:
                pipeline.evalsha(close, 1, f"{key}:bare")
            await pipeline.execute()
        self.has_left.set()

    async def _process(self, redis: Redis, commit: str, found: Any) -> None:
        async with redis.pipeline(transaction=False) as pipeline:
            for key, entries in found:
                for _, fields in entries:
                    events.append((now(), self._numbers[key], json.loads(fields[b"d"])["at"]))
                if entries:
                    offset = entries[-1][0].decode()
                    pipeline.evalsha(commit, 1, f"{key}:bare", "1", self._positions[key], offset)
                    self._positions[key] = offset
            await pipeline.execute()


async def connected() -> Redis:
    redis = Redis.from_url(given["redis"])
    await redis.ping()
    return redis


def soon(work: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(work, loop)


redis = soon(connected()).result(LONG_S)
channel = connect()
put = putter(channel)
gc.collect()
gc.freeze()
holders: list[Holder] = []


def hold(keys: Sequence[str], numbers: Sequence[int]) -> None:
    """Take them at once."""
    holders.append(Holder(keys, numbers))
    soon(holders[-1].run(redis))
    holders[-1].has_taken.wait(LONG_S)


def stand_by(waits: str, keys: Sequence[str], numbers: Sequence[int]) -> None:
    """Take them when this key is put."""
    holder = Holder(keys, numbers)
    holders.append(holder)
    begun = threading.Event()

    def read() -> None:
        for answer in watching(waits, channel):
            if answer.created:
                begun.set()
            if answer.events:
                soon(holder.run(redis))
                return

    threading.Thread(target=read, daemon=True).start()
    begun.wait(LONG_S)


def leave(frees: str) -> dict[str, Any]:
    """Let go of what it has, and put this key."""
    holder, at = holders.pop(), now()
    holder.leave()
    holder.has_left.wait(LONG_S)
    put(pb.PutRequest(key=frees.encode(), value=b"x"))
    return {"asked_at": at, "left_at": now()}


def noted() -> dict[str, Any]:
    found = {"events": events[:], "begins": begins[:], "ends": ends[:]}
    for name, notes in (("events", events), ("begins", begins), ("ends", ends)):
        del notes[: len(found[name])]
    return found


serve({"hold": hold, "stand_by": stand_by, "leave": leave, "noted": noted})
