"""Test the format mark of the hashes in Redis.

Every hash has it, and a hash without it is refused with a clear message.
"""

import re
import shlex
import subprocess

import pytest
from redis import Redis as BlockingRedis
from streams_support import hashes, stepping

from rink.errors import StateError
from rink.guards import Batch, Fence, RedisGuard
from rink.streams.store.keys import Names
from rink.streams.store.store import Store

STREAM = Names.of("shop", "orders")


@stepping
async def test_hash_without_format_is_refused_and_removed_as_told(steps, server):
    await steps.store.settle_count(STREAM, "orders", 16)
    await steps.add(2)
    await steps.take(5)
    other = Names.of("shop", "orders2")
    await steps.store.settle_count(other, "orders2", 16)
    at, offsets = steps.place.at, steps.place.names.offsets
    for key, ask in (
        (at, lambda: steps.take(6)),
        (at, lambda: steps.store.register(steps.place)),
        (offsets, lambda: steps.store.register(steps.place)),
    ):
        await steps.redis.hdel(key, "format")
        before = await hashes(steps.redis)
        with pytest.raises(StateError, match="has no format") as caught:
            await ask()
        assert caught.value.key == key
        assert await hashes(steps.redis) == before
        await steps.redis.hset(key, "format", "1")
    await steps.redis.hset(at, "format", "2")
    with pytest.raises(StateError, match="has format 2, and this version of Rink reads format 1"):
        await steps.take(6)

    await steps.redis.hdel(STREAM.about, "format")
    with pytest.raises(StateError, match="has no format") as caught:
        await Store(steps.redis).check_count(STREAM, "orders", 16)
    run_as_told(caught.value, server)
    assert await steps.redis.keys("*") == [other.about.encode()]


def run_as_told(error, server):
    """Run the command that the error names, as an operator would."""
    command = re.search(r"removes what it left: (.*)", str(error))[1]
    ours = command.replace("redis-cli", f"redis-cli -u {server.url}")
    subprocess.run(["/bin/sh", "-c", ours], check=True, capture_output=True)


def test_guards_hash_without_format_is_refused(rink_redis):
    client = BlockingRedis.from_url(rink_redis.url)
    client.flushall()
    guard = RedisGuard(rink_redis.url, prefix="a guard's:")
    fence, batch = Fence("flights", 5), Batch("q", 0, 2)
    guard.begin(fence, batch)
    keys = client.keys("*")
    assert {client.hget(key, "format") for key in keys} == {b"1"}
    assert len(keys) == 3
    for key in keys:
        client.hdel(key, "format")
        with pytest.raises(StateError, match="has no format") as caught:
            guard.begin(fence, batch)
        assert caught.value.key == key.decode()
        assert shlex.split(str(caught.value).rpartition(": ")[2])[-1] == key.decode()
        client.hset(key, "format", "1")
    client.close()
    guard.close()
