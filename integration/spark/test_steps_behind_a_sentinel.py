"""Source and sink behind a Sentinel: who was given a client that asks it goes on with the new master."""

import redis
from redis.sentinel import Sentinel
from spark_support import COUNT, Shop, edges

from rink.spark.connections import Connection
from rink.spark.sink.publishing import Batch, Sink
from rink.spark.sink.staging import Staging
from rink.streams.values import Bounds
from rink.testing.redis_servers import redis_pair


def shop_behind(pair):
    def connect():
        return Sentinel([(pair.sentinel.host, pair.sentinel.port)]).master_for(
            pair.service, redis_class=redis.Redis
        )

    shop = Shop.__new__(Shop)
    shop.redis = connect()
    Shop.place_on(shop, "spark_shop:client")
    shop.connection = Connection(connect(), 60.0)
    return shop


def write(shop, number):
    staging = Staging(shop.place, shop.connection, 60)
    staging.add((n, f"{number}/{n}/{k}".encode()) for n in range(COUNT) for k in range(5))
    staging.end()
    sink = Sink(shop.place, shop.connection, "q", 1, Bounds(1000), patience=1.0)
    sink.raise_fence()
    sink.commit(Batch("x", number), {staging.attempt: dict(staging.counts)})


def test_a_failover_costs_a_pause():
    with redis_pair(sentinel=True) as pair:
        shop = shop_behind(pair)
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
        write(shop, 0)  # again: it is known to be published, there too
        last = group.follow(first)
        for number in range(COUNT):
            assert shop.read("0-0", last[number], number, removed=0) == shop.ids(number)
            assert len(shop.ids(number)) == 10
        group.advance(last)
        assert {number: shop.offset(number=number) for number in range(COUNT)} == last
