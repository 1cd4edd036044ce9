"""Run redis-py alone in a process, as the machine's limit.

It also sends events at a steady pace.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from child import now, serve
from redis.asyncio import Redis
from sales import DATA, dumps, sale

given = json.loads(sys.argv[1])
BLOCK_MS = 1000
TICK_S = 0.005
COMMIT = """
local found = redis.call('HMGET', KEYS[1], 'fence', 'offset')
if found[1] ~= ARGV[1] or found[2] ~= ARGV[2] then return redis.error_reply('STALE') end
redis.call('HSET', KEYS[1], 'offset', ARGV[3])
return 1
"""


def on_loop(work: Any) -> Any:
    """Make an async function with a client a command."""

    def command(**arguments: Any) -> dict[str, Any]:
        async def body() -> dict[str, Any]:
            async with Redis.from_url(given["redis"]) as redis:
                await redis.ping()
                gc.collect()
                gc.freeze()
                return await work(redis, **arguments)

        return asyncio.run(body())

    return command


# ── processing ───────────────────────────────────────────────────────────────────────────────


async def process(redis: Redis, keys: Sequence[str], each: int, batch: int) -> dict[str, Any]:
    """Process with XREAD of all partitions, JSON, and plain commits.

    Each commit is for one partition and batch, with a round trip of its own.
    """
    sha = await redis.script_load(COMMIT)
    positions = dict.fromkeys(keys, "0-0")
    for key in keys:
        await redis.hset(f"{key}:bare", mapping={"fence": "1", "offset": "0-0"})
    left, total = each * len(keys), 0
    began = time.perf_counter()
    while left:
        passed = []
        for key, entries in pairs(await redis.xread(positions, count=batch, block=BLOCK_MS)):
            for _, fields in entries:
                total += json.loads(fields[b"d"])["amount"]
            left -= len(entries)
            passed.append((key.decode(), entries[-1][0].decode()))
        async with redis.pipeline(transaction=False) as pipeline:
            for key, offset in passed:
                pipeline.evalsha(sha, 1, f"{key}:bare", "1", positions[key], offset)
                positions[key] = offset
            await pipeline.execute()
    return {"seconds": time.perf_counter() - began, "total": total}


def pairs(found: Any) -> Any:
    """Return the streams of an XREAD answer, of either protocol."""
    return found.items() if isinstance(found, dict) else found


async def listen(redis: Redis, keys: Sequence[str], count: int) -> dict[str, Any]:
    """Read all partitions by blocking XREAD; return each event's age.

    The age is taken when the event has been decoded.
    """
    positions, delays = dict.fromkeys(keys, "0-0"), []
    while len(delays) < count:
        for key, entries in pairs(await redis.xread(positions, count=1000, block=BLOCK_MS)):
            for _, fields in entries:
                delays.append(now() - json.loads(fields[b"d"])["at"])
            positions[key.decode()] = entries[-1][0].decode()
    return {"delays": delays}


# ── sending ──────────────────────────────────────────────────────────────────────────────────


async def fill(redis: Redis, keys: Sequence[str], each: int) -> dict[str, Any]:
    """Send this many events to each partition, without timing."""
    return await send(redis, keys, each * len(keys), at_once=1000)


async def send(redis: Redis, keys: Sequence[str], count: int, at_once: int) -> dict[str, Any]:
    """Send by XADD, with `at_once` of them in a pipeline."""
    records = [sale(number) for number in range(count)]
    began = time.perf_counter()
    if at_once == 1:
        for number, record in enumerate(records):
            await redis.xadd(keys[number % len(keys)], {DATA: dumps(record)})
    for start in range(0, count if at_once > 1 else 0, at_once):
        async with redis.pipeline(transaction=False) as pipeline:
            for number in range(start, min(start + at_once, count)):
                pipeline.xadd(keys[number % len(keys)], {DATA: dumps(records[number])})
            await pipeline.execute()
    return {"seconds": time.perf_counter() - began}


async def pace(redis: Redis, keys: Sequence[str], rate: float, count: int) -> dict[str, Any]:
    """Send this many events a second, to each partition in turn.

    Each has the time it was sent.
    """
    began, sent = now(), 0
    most = int(rate * 4 * TICK_S) + 1  # late events are not all sent at once
    while sent < count:
        await asyncio.sleep(max(began + sent / rate - now(), 0 if rate < 1000 else TICK_S))
        due = min(int((now() - began) * rate) + 1, count, sent + most)
        async with redis.pipeline(transaction=False) as pipeline:
            for number in range(sent, due):
                event = {"n": number, "who": "", "at": now()}
                pipeline.xadd(keys[number % len(keys)], {DATA: dumps(event)})
            await pipeline.execute()
        sent = due
    return {"began": began, "seconds": now() - began, "rate": count / (now() - began)}


if __name__ == "__main__":
    works = [process, listen, fill, send, pace]
    serve({work.__name__: on_loop(work) for work in works})
