"""Share a stream in a real Redis, and the steps that Spark would do."""

import json

import redis

from rink.spark.options import StreamPlace
from rink.spark.redis_connection import RedisConnection
from rink.spark.source.group import Group
from rink.spark.source.reading import Range, pages
from rink.streams.store.keys import Names

COUNT = 3


class Shop:
    """One stream of raw events with three partitions, by plain commands."""

    def __init__(self, url, connect=redis.Redis.from_url, patience=1.0):
        self.redis = connect(url)
        self.place_on(url)
        self.connection = RedisConnection(connect(url), patience)

    def close(self):
        """Close the connections: after an error, a cycle may keep them open."""
        self.redis.close()
        self.connection.client.close()

    def place_on(self, url):
        """Make the stream exist."""
        self.url = url
        self.place = StreamPlace(
            app="", app_name="shop", stream="orders", redis=url, record="", patience=1.0
        )
        self.names = Names.of("shop", "orders")
        self.redis.hset(self.names.about, mapping={"format": 1, "partitions": COUNT})

    def key(self, number=0):
        return self.names.partition(number).stream

    def add(self, number=0, count=1):
        """Append events; return their ids."""
        return [
            self.redis.xadd(self.key(number), {"d": f"{number}"}).decode() for _ in range(count)
        ]

    def hold(self, name="bill", number=0, at="0-0"):
        """Register a processor that has passed so much."""
        self.redis.hset(self.names.partition(number).offsets, mapping={"format": 1, name: at})

    def group(self, name="q", token=0, strict=True):
        """Return a driver's reader that has done nothing yet."""
        return Group(self.place, self.connection, name, token, strict=strict)

    def offset(self, name="spark/q", number=0):
        found = self.redis.hget(self.names.partition(number).offsets, name)
        return found.decode() if found else None

    def at(self, number=0, name="spark/q"):
        return self.names.partition(number).at(name)

    def ids(self, number=0):
        return [at.decode() for at, _ in self.redis.xrange(self.key(number))]

    def read(self, start, end, number=0, removed=None, strict=True, size=2):
        wanted = Range(self.place, number, start, end, removed, "spark/q", strict)
        found = []
        for page in pages(self.connection, wanted, size):
            found.extend(at.decode() for at, _ in page)
        return found

    def trim(self, number=0, to=0):
        """Trim as an impatient operator does."""
        self.redis.xtrim(self.key(number), maxlen=to, approximate=False)


def edges(edge):
    return dict.fromkeys(range(COUNT), edge)


def rows_of(redis_client, stream, partition_count):
    """Return all records of a stream as plain values, by partition, in order."""
    found = []
    for number in range(partition_count):
        entries = redis_client.xrange(stream.names.partition(number).stream)
        found.append([json.loads(fields[b"d"]) for _, fields in entries])
    return found


def forget_last_commit(checkpoint):
    """Remove Spark's last commit, so that it plans and runs the batch again."""
    last = max((checkpoint / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
