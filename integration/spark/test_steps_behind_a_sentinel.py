"""Test source and sink behind a Sentinel.

A client that asks the Sentinel continues with the new master.
"""

import pytest
from redis.sentinel import Sentinel
from sink_steps import put_aside, sink
from spark_support import COUNT, Shop, edges

from rink.spark.sink.publishing import SinkBatch
from rink.testing.redis_server.local import redis_pair

pytestmark = pytest.mark.waits


def write(shop, number):
    made = sink(shop, token=1)
    made.raise_fence()
    records = [(n, f"{number}/{n}/{k}") for n in range(COUNT) for k in range(5)]
    made.commit(SinkBatch("x", number), put_aside(shop, *records))


def test_failover_costs_a_pause():
    with redis_pair(sentinel=True) as pair:
        asks = Sentinel([(pair.sentinel.host, pair.sentinel.port)])
        shop = Shop(pair.sentinel_url, lambda _: asks.master_for(pair.service), patience=60.0)
        assert "Sentinel" in shop.connection.server
        for number in range(COUNT):
            shop.hold(number=number)  # so nothing is trimmed
        group = shop.group()
        group.begin(edges("earliest"))
        write(shop, 0)
        first = group.follow(edges("0-0"))
        pair.wait_replicated()
        pair.failover()
        write(shop, 1)
        write(shop, 1)  # again: the new master also knows that it is published
        last = group.follow(first)
        for number in range(COUNT):
            assert shop.read("0-0", last[number], number, removed=0) == shop.ids(number)
            assert len(shop.ids(number)) == 10
        group.advance(last)
        assert {number: shop.offset(number=number) for number in range(COUNT)} == last
