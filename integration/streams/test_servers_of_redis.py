"""Test other forms of Redis, and its outages.

The forms are a cluster, a master behind a Sentinel, and a Redis with users. It is restarted,
restored, and away.
"""

import asyncio
import contextlib
import time

import pytest
from pems import Files
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import Sentinel
from workers_support import QUICK, Leg, RealServers, Shop, until, until_seen, until_true, with_shop

from rink.errors import ConfigError
from rink.streams import (
    App,
    CrossSlot,
    RedisAuth,
    RedisOutOfMemory,
    RedisUnavailable,
    Worker,
    admin,
)
from rink.streams.consumer import monitor
from rink.streams.consumer.eviction_check import Evictions
from rink.streams.store.store import Store
from rink.testing import local_redis, redis_cluster, redis_pair

pytestmark = pytest.mark.waits


@contextlib.asynccontextmanager
async def shop_on(redis, etcd_url, prefix, probe, **stream):
    """Make a shop on a Redis; `redis` says how to reach it.

    `probe` is a plain client for looking.
    """
    shop = Shop(RealServers(None, etcd_url, prefix, url=redis, probe=probe), **stream)
    try:
        yield shop
    finally:
        await shop.close()


def note_all(shop, **settings):
    @shop.app.processor(shop.legs, **(QUICK | settings))
    async def note(events):
        async for batch in events.take(20).records():
            shop.seen.extend((leg.who, leg.n) for leg in batch)


@pytest.fixture(scope="module")
def running_cluster():
    with redis_cluster(3, node_timeout_ms=15_000) as cluster:
        yield cluster


@pytest.fixture
def three_masters(running_cluster):
    for node in running_cluster.nodes:
        node.flush()
    return running_cluster


def test_workers_share_a_stream_on_a_cluster(three_masters, etcd_url, prefix):
    """Workers share a stream on a cluster.

    Its partitions lie on several nodes. Order and hand-over are as on one node.
    """

    async def body():
        def connect():
            return RedisCluster.from_url(three_masters.urls[0])

        async with shop_on(connect, etcd_url, prefix, connect()) as shop:
            nodes = {three_masters.node_of(shop.names(n).stream).port for n in range(4)}
            assert len(nodes) > 1
            note_all(shop)
            await shop.send_keys(1000)
            async with shop.workers("a") as (start, stop):
                await until_seen(shop, 500)
                await start("b")
                await shop.send_keys(1000)
                await stop("a")
                await until_seen(shop, 2000)
            assert len(shop.seen) == 2000

    asyncio.run(asyncio.wait_for(body(), 60))


def test_dead_letters_are_read_on_a_cluster(three_masters, etcd_url, prefix):
    async def body():
        def connect():
            return RedisCluster.from_url(three_masters.urls[0])

        letters = []
        async with shop_on(connect, etcd_url, prefix, connect()) as shop:

            @shop.app.processor(shop.legs, max_attempts=1, retry_for=0, breaker=None, **QUICK)
            async def note(events):
                async for _ in events:
                    raise ValueError("no")

            @shop.app.processor(shop.legs.dead_letters("note"), **QUICK)
            async def alert(events):
                async for letter in events.records():
                    letters.append((events.partition, letter.record.n))

            await shop.send_keys(40)
            async with shop.workers("a"):
                await until(lambda: len(letters) >= 40)
            assert sorted(n for _, n in letters) == list(range(40))
            assert len({number for number, _ in letters}) == 4

    asyncio.run(asyncio.wait_for(body(), 60))


def test_outputs_in_other_slots_are_refused_with_a_word_on_what_to_do(
    three_masters, etcd_url, prefix
):
    async def body():
        def connect():
            return RedisCluster.from_url(three_masters.urls[1])

        told = []
        async with shop_on(connect, etcd_url, prefix, connect()) as shop:
            out = shop.app.stream("out", record=Leg, partition_by="who", partition_count=2)

            @shop.app.processor(
                shop.legs, name="copy", commit="manual", max_attempts=1, retry_for=0, **QUICK
            )
            async def copy(events):
                async for leg in events.records():
                    try:
                        await events.commit([(out, Leg(n=leg.n, who=leg.who))])
                    except CrossSlot as error:
                        told.append(str(error))
                        await out.send(Leg(n=leg.n, who=leg.who))
                        await events.commit()

            await shop.send(1, 2)
            async with shop.workers("a"):
                await until(lambda: len(told) == 2)
            assert "slot" in told[0]
            assert "send()" in told[0]

    asyncio.run(asyncio.wait_for(body(), 60))


def test_worker_follows_its_sentinel_to_the_new_master(etcd_url, prefix):
    async def body(pair):
        def connect():
            return Sentinel([(pair.sentinel.host, pair.sentinel.port)]).master_for(pair.service)

        async with shop_on(connect, etcd_url, prefix, connect()) as shop:
            note_all(shop)
            async with shop.workers("a"):
                await shop.send(*range(50))
                await until_seen(shop, 50)
                await asyncio.to_thread(pair.wait_replicated)
                await asyncio.to_thread(pair.failover)
                await shop.send(*range(50, 100))
                await until_seen(shop, 100, seconds=30)
            assert shop.numbers("a") == list(range(100))

    with redis_pair(sentinel=True) as pair:
        asyncio.run(asyncio.wait_for(body(pair), 90))


def test_failover_to_an_older_replica_stops_the_partition_and_says_so(etcd_url, prefix):
    async def body(pair):
        def connect():
            return Sentinel([(pair.sentinel.host, pair.sentinel.port)]).master_for(pair.service)

        async with shop_on(connect, etcd_url, prefix, connect()) as shop:
            note_all(shop)
            number = shop.partition("a")
            async with shop.workers("a"):
                await shop.send(*range(10))
                await until_seen(shop, 10)
                await asyncio.to_thread(pair.wait_replicated)
                await asyncio.to_thread(pair.cut)
                await shop.send(*range(10, 20))
                await until_seen(shop, 20)
                await asyncio.to_thread(pair.failover)
                why = await shop.quarantined("note", number)
                assert "rolled back" in why
                assert "rink streams unquarantine" in why

    with redis_pair(sentinel=True) as pair:
        asyncio.run(asyncio.wait_for(body(pair), 90))


@with_shop()
async def test_redis_that_is_restarted_costs_a_pause(shop):
    note_all(shop)
    async with shop.workers("a", "b"):
        await shop.send(*range(50))
        await until_seen(shop, 50)
        await asyncio.to_thread(shop.servers.server.restart)
        await shop.send(*range(50, 100))
        await until_seen(shop, 100)
    assert shop.numbers("a") == list(range(100))


@with_shop()
async def test_restored_redis_quarantines_partition_until_unquarantine(
    shop,
):
    note_all(shop)
    number, other = shop.partition("a"), (shop.partition("a") + 1) % 4
    async with shop.workers("a"):
        await shop.send(*range(5))
        await shop.send(1, who=shop.of_key(other))
        await until_seen(shop, 6)
        await until_true(lambda: shop.are_committed("note", 6))
        copy = await asyncio.to_thread(shop.servers.server.save_copy)
        await shop.send(*range(5, 10))
        await until_seen(shop, 11)
        await asyncio.to_thread(shop.servers.server.restore_copy, copy)
        assert "rolled back" in await shop.quarantined("note", number)
        await shop.send(2, who=shop.of_key(other))
        await until(lambda: shop.numbers(shop.of_key(other)) == [1, 2])
        opened = await shop.app.connections.open()
        place = shop.app.processors["note"].place(number)
        await opened.store.run("unquarantine", place.keys, processor="note")
        await shop.send(10, 11)
        await until(lambda: shop.numbers("a")[-2:] == [10, 11])


@with_shop()
async def test_with_redis_out_of_memory_what_was_sent_is_processed_and_committed(shop):
    note_all(shop)
    await shop.send(*range(100))
    await shop.app.close()  # so that it begins anew, with its first checks
    shop.servers.server.call("CONFIG", "SET", "maxmemory", "1")
    try:
        assert sum(one.lag for one in await admin.lag(shop.app)) == 100
        async with shop.workers("a"):
            await until_seen(shop, 100)
            await until_true(lambda: shop.are_committed("note", 100))
            with pytest.raises(RedisOutOfMemory, match="out of memory"):
                await shop.legs.send(Leg(n=100, who="a"), timeout=2)
    finally:
        shop.servers.server.call("CONFIG", "SET", "maxmemory", "0")


# ── faults at the start ──────────────────────────────────────────────────────────────────────


def test_no_redis_is_a_clear_error():
    async def body():
        app = App("shop", redis="redis://127.0.0.1:1")
        legs = app.stream("legs", record=Leg, partition_by="who")
        with pytest.raises(RedisUnavailable, match=r"127\.0\.0\.1:1"):
            await legs.send(Leg(n=1, who="a"), timeout=0.1)

    asyncio.run(body())


@pytest.mark.parametrize("url", ["redis://:wrong@{at}", "redis://{at}", "redis://nobody:x@{at}"])
def test_wrong_password_is_a_clear_error(url):
    async def body(at):
        app = App("shop", redis=url.format(at=at))
        legs = app.stream("legs", record=Leg, partition_by="who")
        with pytest.raises(RedisAuth, match="user and password"):
            await legs.send(Leg(n=1, who="a"))

    with local_redis(password="secret") as redis:
        asyncio.run(body(f"{redis.host}:{redis.port}"))


ALLOWED = (
    "worker on >pw ~rink:* &* -@all +@connection +@read +@stream +@hash +@scripting +info +time "
    "+type +exists +set +del -client +client|id +client|unblock"
)
"""The permissions of a worker's Redis user that docs/streams-redis.md names."""


def test_user_who_may_do_what_the_docs_say_can_run_a_worker(etcd_url, prefix):
    async def body(redis):
        url = f"redis://worker:pw@{redis.host}:{redis.port}"
        async with shop_on(url, etcd_url, prefix, Redis.from_url(redis.url), keep="1h") as shop:
            note_all(shop)
            await shop.send_keys(100)
            async with shop.workers("a") as (start, stop):
                await until_seen(shop, 100)
                await start("b")
                await stop("a")
                await shop.send_keys(100)
                await until_seen(shop, 200)

    with local_redis(acl=(ALLOWED,)) as redis:
        asyncio.run(asyncio.wait_for(body(redis), 60))


def test_user_who_may_do_what_the_docs_say_can_run_a_worker_on_a_cluster(etcd_url, prefix):
    async def body(cluster):
        node = cluster.nodes[0]

        def connect():
            return RedisCluster(host=node.host, port=node.port, username="worker", password="pw")

        probe = RedisCluster(host=node.host, port=node.port)
        async with shop_on(connect, etcd_url, prefix, probe, keep="1h") as shop:
            note_all(shop)
            await shop.send_keys(100)
            async with shop.workers("a"):
                await until_seen(shop, 100)
            for lag in await admin.lag(shop.app):  # what the counters say is read on each node
                assert (lag.kept, lag.keep) == (
                    await probe.xlen(shop.names(lag.partition).stream),
                    "1 h",
                )

    with redis_cluster(3, acl=(f"{ALLOWED} +cluster|slots",)) as cluster:
        asyncio.run(asyncio.wait_for(body(cluster), 60))


def test_older_redis_is_refused(monkeypatch, rink_redis):
    async def body():
        app = App("shop", redis=rink_redis.url)
        app.stream("legs", record=Leg, partition_by="who")
        monkeypatch.setattr("rink.streams.store.store.OLDEST_REDIS", (99, 0))
        with pytest.raises(ConfigError, match="need 99"):
            await app.connections.open()

    asyncio.run(body())


@with_shop()
async def test_something_else_under_a_partitions_key_stops_that_partition_alone(shop):
    note_all(shop)
    number = shop.partition("a")
    await shop.redis.set(shop.names(number).stream, "something else")
    good = shop.of_key((number + 1) % 4)
    worker = Worker(shop.app, name="a")
    task = asyncio.create_task(worker.run())
    await shop.send(1, 2, who=good)
    await until_seen(shop, 2)
    with pytest.raises(Exception, match="something else"):
        await shop.send(1)
    await shop.redis.delete(shop.names(number).stream)
    await shop.send(1)
    await until_seen(shop, 3)
    worker.stop()
    await task


def test_client_with_a_short_socket_timeout_survives_idle_reads(rink_redis, etcd_url, prefix):
    """Idle reads do not break a client with a short socket timeout."""

    async def body():
        async with shop_on(f"{rink_redis.url}?socket_timeout=1", etcd_url, prefix, None) as shop:
            note_all(shop)
            async with shop.workers("a"):
                await shop.send(1)
                await until_seen(shop, 1)
                before = (await shop.redis.info("stats"))["total_connections_received"]
                await asyncio.sleep(3)
                await shop.send(2)
                await until_seen(shop, 2)
                after = (await shop.redis.info("stats"))["total_connections_received"]
                assert after - before <= 1

    asyncio.run(asyncio.wait_for(body(), 60))


def test_first_send_waits_for_redis_as_long_as_it_says():
    async def body(redis):
        app = App("shop", redis=redis.url)
        legs = app.stream("legs", record=Leg, partition_by="who")
        redis.kill()
        # Within the timeout even a busy machine has tried once.
        text = r"cannot be reached.*nothing was sent to stream 'legs'"
        for send in (
            lambda: legs.send(Leg(n=1, who="a"), timeout=2.0),
            lambda: legs.send_many([Leg(n=1, who="a")], timeout=2.0),
        ):
            with pytest.raises(RedisUnavailable, match=text):
                await send()
        sending = asyncio.create_task(legs.send(Leg(n=2, who="a")))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(redis.start)
        await sending
        number = legs.partition_of(Leg(n=2, who="a"))
        assert [event.record.n async for event in legs.read(number)] == [2]
        await app.close()

        redis.freeze()
        other = App("shop", redis=redis.url)
        legs = other.stream("legs", record=Leg, partition_by="who")
        began = time.monotonic()
        with pytest.raises(
            RedisUnavailable, match=r"did not answer: nothing was sent .* in 0\.5 s"
        ):
            await legs.send(Leg(n=3, who="a"), timeout=0.5)
        assert time.monotonic() - began < 4.5
        redis.thaw()
        await other.close()

    with local_redis() as redis:
        asyncio.run(asyncio.wait_for(body(redis), 60))


def test_closing_an_app_raises_nothing_while_redis_is_away(tmp_path):
    """Closing an app while Redis is away raises nothing.

    Over TLS redis-py waits for an answer of the server, and raises if none comes.
    """
    files = Files(tmp_path / "pems", "127.0.0.1", "localhost")

    async def closed(node):
        app = App("shop", redis=f"{node.url}?ssl_ca_certs={files.ca}")
        legs = app.stream("legs", record=Leg, partition_by="who")
        async with app:
            await legs.send(Leg(n=1, who="a"))
            node.freeze()
        await app.close()  # a second time: nothing is left to close

    with local_redis(tls=files.server()) as node:
        began = time.monotonic()
        asyncio.run(closed(node))
        assert time.monotonic() - began < 10
        node.thaw()


def test_worker_tells_of_a_redis_that_evicts(etcd_url, prefix, caplog, monkeypatch):
    """A worker reports a Redis that evicts.

    It logs the policy at its start, and later each time that keys were evicted.
    """
    monkeypatch.setattr(monitor, "CHECK_INTERVAL_S", 0.05)
    monkeypatch.setattr(monitor, "LAG_INTERVAL_S", 0.05)
    policy = ("--maxmemory-policy", "allkeys-random")

    async def body(url):
        async with Redis.from_url(url) as probe, shop_on(url, etcd_url, prefix, probe) as shop:
            note_all(shop)
            async with shop.workers("one"):
                await until(lambda: "has maxmemory-policy allkeys-random" in caplog.text)
                assert "has evicted" not in caplog.text
                for number in range(100):
                    await probe.set(f"other:{number}", b"x" * 100_000)
                await until(lambda: "since the last check" in caplog.text)
                await probe.config_set("maxmemory", 0)

    with local_redis(maxmemory="4mb", extra_args=policy) as node:
        asyncio.run(body(node.url))
    assert "Set maxmemory-policy noeviction" in caplog.text
    assert len([one for one in caplog.messages if "has maxmemory-policy" in one]) == 1


def test_worker_says_nothing_of_a_redis_that_does_not_evict(etcd_url, prefix, caplog):
    """A worker logs nothing about a Redis that does not evict.

    Its policy is noeviction, or it has no memory bound.
    """

    async def body(url):
        async with Redis.from_url(url) as probe, shop_on(url, etcd_url, prefix, probe) as shop:
            note_all(shop)
            async with shop.workers("one"):
                await shop.send(1)
                await until_seen(shop, 1)

    for settings in (
        {"maxmemory": "100mb"},
        {"extra_args": ("--maxmemory-policy", "allkeys-lru")},
    ):
        with local_redis(**settings) as node:
            asyncio.run(body(node.url))
    assert "evict" not in caplog.text


def test_evictions_are_looked_for_on_every_master_of_a_cluster(three_masters, caplog):
    three_masters.nodes[1].call("CONFIG", "SET", "maxmemory", "100mb")
    three_masters.nodes[1].call("CONFIG", "SET", "maxmemory-policy", "volatile-ttl")

    async def body():
        store = Store(RedisCluster.from_url(three_masters.nodes[0].url))
        await store.open()
        await Evictions(store).look()
        await store.close()

    asyncio.run(body())
    three_masters.nodes[1].call("CONFIG", "SET", "maxmemory", "0")
    (told,) = [one for one in caplog.messages if "maxmemory-policy" in one]
    assert f"{three_masters.nodes[1].port} has maxmemory-policy volatile-ttl" in told
    assert "appended twice" in told
