"""Run workers in this process, and note the events they saw.

etcd and Redis are in memory and the time is virtual, or all are real: see `servers` in the two
files conftest.py.
"""

import asyncio
import contextlib
import functools
from asyncio import sleep as pass_time
from collections import defaultdict

import attrs
from redis.asyncio import Redis
from redis.exceptions import ConnectionError  # noqa: A004 - it is one, of Redis

from rink.event_loops import loop_time
from rink.streams import App, Record, Worker
from rink.streams.store.store import Store

QUICK = {"initial_delay": 0.1, "rebalance_delay": 0.3}


class Leg(Record):
    n: int
    who: str
    note: str = ""


@attrs.frozen
class MemoryServers:
    """Servers in memory, in virtual time.

    Attributes:
        time: a `VirtualTime`, with an etcd.
        server: a `MemoryRedis`.
        outage_s: how long an outage lasts.
    """

    time = attrs.field()
    server = attrs.field()
    outage_s = 30

    def app(self, name, **settings):
        clock = {"clock": self.time.clock}
        etcd = self.time.cluster.client
        return App(name, redis=self.server.client, etcd=etcd, ttl=10, session=clock, **settings)

    def client(self):
        return self.server.client()

    def run(self, body):
        self.time.run(body)


@attrs.frozen
class RealServers:
    """Real servers, in real time.

    Attributes:
        server: the Redis.
        etcd_url: the endpoint of etcd.
        prefix: of the test's keys in etcd.
        url: how an app reaches it, if not by its plain URL.
        probe: a client for looking, if not one by `url`.
        outage_s: how long an outage lasts.
    """

    server = attrs.field()
    etcd_url = attrs.field()
    prefix = attrs.field()
    url = attrs.field(default=attrs.Factory(lambda self: self.server.url, takes_self=True))
    probe = attrs.field(default=None)
    outage_s = 3

    def app(self, name, **settings):
        its_own = {"prefix": self.prefix}
        return App(name, redis=self.url, etcd=self.etcd_url, ttl=10, session=its_own, **settings)

    def client(self):
        return self.probe or Redis.from_url(self.url)

    def run(self, body):
        asyncio.run(body)


class Shop:
    """Hold an app with one stream, and short words for the tests.

    Attributes:
        seen: the processors' notes in order: key and number.
        servers: the servers of the test.
    """

    def __init__(self, servers, **stream):
        self.servers = servers
        self.redis = servers.client()
        self.app = servers.app("shop")
        given = {"partition_count": 4, "partition_by": "who"} | stream
        self.legs = self.app.stream("legs", record=Leg, **given)
        self.seen = []

    def of_key(self, number, partitions=4):
        """Return a key whose records go to this partition."""
        return next(
            key for key in (f"k{i}" for i in range(10_000)) if self.partition(key) == number
        )

    def partition(self, key):
        return self.legs.partition_of(Leg(n=0, who=key))

    async def send(self, *numbers, who="a"):
        await self.legs.send_many(Leg(n=number, who=who) for number in numbers)

    async def send_keys(self, count, keys=20):
        await self.legs.send_many(Leg(n=n, who=f"k{n % keys}") for n in range(count))

    def names(self, number):
        return self.legs.names.partition(number)

    async def dead(self, processor, number):
        """Return the dead letters of a partition, oldest first."""
        found = await self.redis.xrange(self.names(number).dead(processor))
        return [
            {key.decode(): value.decode() for key, value in fields.items()} for _, fields in found
        ]

    async def quarantined(self, processor, number):
        """Wait until a partition is quarantined; returns why."""
        return await until_true(lambda: self._quarantined(processor, number), what="quarantined")

    async def _quarantined(self, processor, number):
        return (await self.at(processor, number)).get("quarantined")

    async def are_committed(self, processor, count):
        """Return whether `count` events were processed and committed.

        All partitions count together.
        """
        found = [await self.at(processor, n) for n in range(self.legs.partition_count)]
        return sum(int(at.get("processed", 0)) for at in found) >= count

    async def at(self, processor, number):
        found = await self.redis.hgetall(self.names(number).at(processor))
        return {key.decode(): value.decode() for key, value in found.items()}

    @contextlib.asynccontextmanager
    async def workers(self, *names):
        """Run workers of these names while the `with` lasts.

        They leave in order at its end.
        """
        running = {}

        async def start(name):
            worker = Worker(self.app, name=name)
            running[name] = worker, asyncio.create_task(worker.run())
            return worker

        async def stop(name):
            worker, task = running.pop(name)
            worker.stop()
            await task

        for name in names:
            await start(name)
        try:
            yield start, stop
        finally:
            for name in list(running):
                await stop(name)

    def numbers(self, key=None):
        """Return the seen numbers, of one key or by key."""
        by_key = defaultdict(list)
        for who, n in self.seen:
            by_key[who].append(n)
        return by_key if key is None else by_key[key]

    async def close(self):
        await self.app.close()
        await Store(self.redis).close()


async def until(look, seconds=25.0, what=""):
    """Wait until something is so."""
    began = loop_time()
    while not (found := look()):
        assert loop_time() < began + seconds, f"not within {seconds} s: {what or look}"
        await _pass_a_moment(began)
    return found


async def _pass_a_moment(began):
    """Pass about a hundredth of the time since `began`."""
    await pass_time(min(max((loop_time() - began) / 100, 0.005), 0.1))


async def until_true(ask, seconds=25.0, what=""):
    """Wait as `until` does, for an awaitable condition."""
    began = loop_time()
    while True:
        with contextlib.suppress(ConnectionError):  # Redis is just being restarted
            if found := await ask():
                return found
        assert loop_time() < began + seconds, f"not within {seconds} s: {what or ask}"
        await _pass_a_moment(began)


async def until_seen(shop, count, seconds=25.0):
    await until(lambda: len(shop.seen) >= count, seconds, f"{count} seen, but {len(shop.seen)}")


def with_shop(**stream):
    """Give an async test a `Shop` on the servers of its folder."""

    def decorate(test):
        @functools.wraps(test)
        def run(servers):
            async def body():
                shop = Shop(servers, **stream)
                try:
                    await asyncio.wait_for(test(shop), 60)
                finally:
                    await shop.close()

            servers.run(body())

        del run.__wrapped__  # pytest would ask for the arguments of that one
        return run

    return decorate
