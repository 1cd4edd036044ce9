"""Test source and sink on a Redis Cluster.

Each partition has its own slot, and so has the state of a sink.
"""

import pytest
import redis
from sink_steps import put_aside, sink
from spark_support import COUNT, Shop, edges

from rink.errors import StaleToken
from rink.redis.blocking_client import close_idle
from rink.spark.rows import Rows
from rink.spark.schema import RAW
from rink.spark.sink.publishing import SinkBatch
from rink.spark.source.reading import Range, pages
from rink.testing.redis_server.local import redis_cluster


@pytest.fixture(scope="module")
def shop():
    with redis_cluster(3) as cluster:
        made = Shop(cluster.urls[0], redis.RedisCluster.from_url, patience=5.0)
        yield made
        close_idle(made.connection.client)
        close_idle(made.redis)


def test_batches_are_written_once_and_read_back_in_order(shop):
    for token, number in ((1, 0), (2, 0), (2, 1)):
        records = [(n, f"{number}/{n}/{k}") for n in range(COUNT) for k in range(5)]
        sink(shop, token).commit(SinkBatch("x", number), put_aside(shop, *records))
    with pytest.raises(StaleToken):
        sink(shop, 1).raise_fence()

    group = shop.group()
    start = group.begin(edges("earliest"))
    end = group.follow(start)
    for number in range(COUNT):
        wanted = Range(shop.place, number, "0-0", end[number], 0, "spark/q", strict=True)
        rows = Rows(RAW, number, None, None, "spark/q", "it")
        read = [
            row["value"]
            for page in pages(shop.connection, wanted, 3)
            for row in rows.batch(page).to_pylist()
        ]
        assert read == [f"{batch}/{number}/{k}".encode() for batch in (0, 1) for k in range(5)]
    group.advance(end)
    assert [shop.redis.xlen(shop.key(number)) for number in range(COUNT)] == [1] * COUNT
