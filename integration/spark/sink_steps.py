"""Share a sink on a real Redis, and drivers that die; Spark is not used."""

import contextlib

import pytest
import redis
from spark_support import Shop

from rink.spark.redis_connection import RedisConnection
from rink.spark.sink import publishing
from rink.spark.sink.publishing import Sink
from rink.spark.sink.staging import Staging
from rink.streams.store.values import PartitionBounds


@pytest.fixture
def shop(rink_redis, monkeypatch):
    monkeypatch.setattr(publishing, "STEP", 2)
    monkeypatch.setattr(publishing, "_LOOK_INTERVAL_S", 0.01)
    with contextlib.closing(Shop(rink_redis.url)) as made:
        yield made
        made.redis.config_set("maxmemory", 0)


def sink(shop, token=0, name="q", limit=1000, connection=None, patience=5.0, loses=False, **more):
    return Sink(
        shop.place,
        connection or shop.connection,
        name,
        token,
        PartitionBounds(limit, loses),
        patience=patience,
        **more,
    )


def put_aside(shop, *records):
    """Stage as one attempt of a task; return its part of the manifest."""
    staging = Staging(shop.place, shop.connection, 60)
    staging.add((number, data.encode()) for number, data in records)
    staging.end()
    return {staging.attempt: dict(staging.counts)}


def published(shop, number=0):
    found = shop.redis.xrange(shop.key(number))
    return [fields[b"d"].decode() for _, fields in found]


def left(shop):
    return [key.decode() for key in shop.redis.keys("*:staged:*")]


class Died(BaseException):
    """Raised when the driver is gone."""


class DiesAfter:
    """A connection that dies after so many steps of publish or decide."""

    def __init__(
        self,
        shop,
        steps,
        names=("sink/decide", "sink/keep", "sink/publish", "sink/finish"),
        before=False,
    ):
        self.plain = RedisConnection(redis.Redis.from_url(shop.url), 1.0)
        self.steps, self.names, self.before = steps, names, before

    def __getattr__(self, name):
        return getattr(self.plain, name)

    def run(self, name, keys, blobs=(), /, **args):
        return self.run_each(name, [(keys, args, blobs)])[0]

    def run_each(self, name, asked):
        if name in self.names:
            if self.steps == 0 and self.before:
                raise Died
            self.steps -= 1
        found = self.plain.run_each(name, asked)
        if name in self.names and self.steps <= 0 and not self.before:
            raise Died
        return found


def decided_and_left(shop, batch, manifest, moved, token=0):
    """Run a driver that dies after so many steps of publishing."""
    dies = sink(shop, token=token, connection=DiesAfter(shop, moved + 1, names=("sink/publish",)))
    with pytest.raises(Died):
        dies.commit(batch, manifest)
