"""Test what operators do where only a real server answers so."""

import asyncio

import pytest
from admin_support import Desk, Order, at_desk
from redis.asyncio import RedisCluster

from rink.errors import EtcdUnavailable
from rink.streams import App, RedisError, admin
from rink.testing import redis_cluster


@at_desk()
async def test_what_only_reads_goes_on_where_nothing_may_be_written(desk):
    await desk.store.register(desk.place)
    await desk.redis.config_set("min-replicas-to-write", "1")
    try:
        assert len(await admin.lag(desk.app, processor="bill")) == 4
        with pytest.raises(RedisError, match="Not enough good replicas"):
            await desk.take(5)
    finally:
        await desk.redis.config_set("min-replicas-to-write", "0")


@at_desk()
async def test_owners_without_an_etcd_fail_at_once(desk):
    """Port 1 has no server."""
    desk.app.etcd, desk.app.session = "http://127.0.0.1:1", {"timeout": 60.0}
    async with asyncio.timeout(30.0):
        with pytest.raises(EtcdUnavailable, match="no etcd listens at"):
            await admin.owners(desk.app, processor="bill")


def test_on_a_cluster_each_partition_is_where_its_slot_is():
    async def body(cluster):
        def connect():
            return RedisCluster(host=cluster.nodes[0].host, port=cluster.nodes[0].port)

        async with Desk(App("shop", redis=connect), partition_count=8) as desk:
            await desk.orders.send_many(Order(order_id=n) for n in range(80))
            for name in ("bill", "ship"):
                for number in range(8):
                    await desk.store.register(desk.app.processors[name].place(number))
            found = await admin.lag(desk.app)
            assert sum(one.lag for one in found) == 160
            letter = await desk.add_dead_letter()
            (again,) = await admin.requeue(desk.app, letter)
            assert again.partition == 1
            moved = await admin.reset(desk.app, "bill", "latest")
            assert len(moved) == 8
            ids = await desk.ids()
            await desk.quarantine(f"event {ids[0]} of 'orders/1', processor 'ship': E", desk.ship)
            (moved,) = await admin.unquarantine(desk.app, skip=True)
            assert moved.skipped == ids[0]
            gone = await admin.forget_group(desk.app, "ship", force=True)
            assert sum(one.waited for one in gone) == 80  # the requeued one lies in its way, too
            assert {one.processor for one in await admin.lag(desk.app) if one.offset} == {"bill"}

    with redis_cluster(3) as cluster:
        asyncio.run(body(cluster))
