"""Share a store, partitions, and steps on them with tests of streams."""

import asyncio
import functools

from redis.asyncio import Redis

from rink.streams.store.keys import Names, PartitionNames
from rink.streams.store.store import Store
from rink.streams.store.values import CommitStep, Output, PartitionBounds, PartitionPlace
from rink.testing.memory.fake_redis import MemoryRedis


def client_of(server):
    """Return a client of a Redis in memory, or of a real server."""
    return server.client() if isinstance(server, MemoryRedis) else Redis.from_url(server.url)


def place_of(processor="bill", number=3, start="earliest", limit=1000, loses=False):
    names = Names.of("shop", "orders").partition(number)
    return PartitionPlace("orders", number, names, processor, PartitionBounds(limit, loses), start)


class Steps:
    """Wrap a store's steps on one partition in short words."""

    def __init__(self, redis, place=None):
        self.redis = redis
        self.store = Store(redis)
        self.place = place or place_of()

    async def add(self, count=1, place=None):
        """Append so many records; returns their ids."""
        place = place or self.place
        self.number = getattr(self, "number", 0) + 1
        records = [f'{{"n":{n}}}'.encode() for n in range(count)]
        added, found = await self.store.append(
            place.names, place.bounds, records, self.number, True
        )
        assert added == count
        return found

    async def take(self, token, place=None, first=0, known=None):
        return await self.store.take(place or self.place, token, first, known)

    async def commit(self, token, expected, new, place=None, epoch="0", **more):
        step = CommitStep(token=token, epoch=epoch, expected=expected, new=new, processed=1, **more)
        await self.store.commit(place or self.place, step)

    async def position(self, place=None):
        return await self.store.position(place or self.place)

    async def ids(self, place=None):
        key = (place or self.place).names.stream
        return [entry_id.decode() for entry_id, _ in await self.redis.xrange(key)]


def output(key="out", limit=0, loses=False, value="x"):
    """Return an output to a stream that has a plain name."""
    return Output(
        PartitionNames(key), PartitionBounds(limit, loses) if limit else None, ("d", value)
    )


def stepping(test):
    """Give an async test `steps` on `rink_redis`, in memory or real."""

    @functools.wraps(test)
    def run(rink_redis):
        async def with_steps():
            async with client_of(rink_redis) as redis:
                await test(Steps(redis), rink_redis)

        asyncio.run(with_steps())

    del run.__wrapped__  # pytest would ask for the arguments of that one
    return run


async def hashes(redis):
    """Return every hash that lies in Redis, by its key."""
    return {key: await redis.hgetall(key) async for key in redis.scan_iter(_type="hash")}
