"""Test groups of Redis servers: a cluster, a pair, a Sentinel."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
import redis
import redis.asyncio.sentinel
from servers_support import client_of, wait_until

from rink.errors import UsageError
from rink.redis.blocking_client import close_idle
from rink.testing import RedisServerError, RedisServerUnavailable, redis_cluster, redis_pair

pytestmark = pytest.mark.waits

DOWN_AFTER_MS = 3000
"""A Sentinel takes no stall of the machine for the end of its master."""

# --------------------------------------------------------------------------- a cluster


@contextlib.contextmanager
def client_of_all(cluster):
    """Give a client of the whole cluster, and close all its connections.

    The client's own `close` leaves connections to nodes open.
    """
    client = redis.RedisCluster.from_url(cluster.urls[0], decode_responses=True)
    try:
        yield client
    finally:
        close_idle(client)


def test_cluster_serves_all_slots_and_finds_the_node_of_a_key():
    with redis_cluster(3) as cluster:
        assert len(cluster.urls) == 3
        one, other = cluster.node_of("a"), cluster.node_of("b")
        assert one is not other
        with client_of(one.url) as client:
            assert client.set("a", "1")
            with pytest.raises(redis.exceptions.MovedError, match=rf"127.0.0.1:{other.port}"):
                client.set("b", "1")
        with client_of_all(cluster) as client:
            for i in range(100):
                client.set(f"key-{i}", i)
            assert [int(client.get(f"key-{i}")) for i in range(100)] == list(range(100))
        assert all(int(node.call("DBSIZE")) > 10 for node in cluster.nodes)


def test_cluster_with_a_lost_node_serves_again_after_its_start():
    with redis_cluster(3, node_timeout_ms=2000) as cluster:
        lost, other = cluster.node_of("a"), cluster.node_of("b")
        other.call("SET", "b", "1")
        lost.call("SET", "a", "1")
        lost.kill()

        failed = "cluster_state:fail"
        wait_until(lambda: other.call("CLUSTER", "INFO").startswith(failed))
        with pytest.raises(
            RedisServerUnavailable, match=r"(?s)did not serve within.*cluster_state"
        ):
            cluster.wait_healthy(0.2)
        with pytest.raises(RedisServerError) as caught:
            other.call("SET", "b", "2")
        assert caught.value.code == "CLUSTERDOWN"
        lost.start()
        cluster.wait_healthy()
        assert (lost.call("GET", "a"), other.call("GET", "b")) == ("1", "1")


def test_cluster_without_full_coverage_serves_the_other_slots():
    more = ("--cluster-require-full-coverage", "no")
    with redis_cluster(3, node_timeout_ms=3000, extra_args=more) as cluster:
        lost, other = cluster.node_of("a"), cluster.node_of("b")
        lost.freeze()
        cluster.wait_healthy()
        assert other.call("SET", "b", "1") == "OK"
        assert cluster.node_of("a") is lost
        lost.thaw()
        cluster.wait_healthy()


def test_cluster_in_a_given_folder_survives(tmp_path):
    with redis_cluster(3, data_dir=tmp_path) as cluster:
        cluster.node_of("a").call("SET", "a", "1")
        urls = cluster.urls
    with redis_cluster(3, data_dir=tmp_path) as cluster:
        assert cluster.urls == urls
        assert cluster.node_of("a").call("GET", "a") == "1"


def test_cluster_has_a_password_too():
    with redis_cluster(3, password="pw") as cluster:
        with client_of_all(cluster) as client:
            client.set("a", "1")
            client.set("b", "1")
        stranger = client_of(cluster.nodes[0].endpoint)
        with stranger as client, pytest.raises(redis.AuthenticationError):
            client.get("a")


# --------------------------------------------------------------------------- a pair


@pytest.mark.parametrize("password", [None, "pw"])
def test_replica_has_the_master_s_data_and_can_be_promoted(password):
    with redis_pair(password=password) as pair, client_of(pair.master.url) as client:
        client.set("a", "1")
        pair.wait_replicated()
        old, new = pair.master, pair.replica
        with client_of(new.url) as reader:
            assert reader.get("a") == "1"
            with pytest.raises(redis.ReadOnlyError):
                reader.set("a", "2")
        assert pair.failover() is new
        assert (pair.master, pair.replica) == (new, old)
        assert not old.is_running
        with client_of(new.url) as writer:
            assert writer.set("a", "2")
        pair.heal()
        assert client.get("a") == "2"
        with pytest.raises(redis.ReadOnlyError):
            client.set("a", "3")
        pair.failover()
        pair.heal()
        assert pair.master is old
        assert client.set("a", "3")


def test_promoted_replica_lacks_the_writes_after_the_cut():
    with redis_pair() as pair:
        pair.master.call("XADD", "orders", "1-0", "n", "1")
        pair.wait_replicated()
        pair.cut()
        pair.master.call("XADD", "orders", "2-0", "n", "2")
        assert pair.replica.call("XLEN", "orders") == 1
        pair.failover()
        assert pair.master.call("XLEN", "orders") == 1
        pair.master.call("XADD", "orders", "3-0", "n", "3")
        pair.heal()
        assert [entry for entry, _ in pair.replica.call("XRANGE", "orders", "-", "+")] == [
            "1-0",
            "3-0",
        ]


def test_cut_heals_without_a_fail_over_too():
    with redis_pair() as pair:
        pair.cut()
        pair.master.call("SET", "a", "1")
        assert pair.replica.call("GET", "a") is None
        pair.heal()
        assert pair.replica.call("GET", "a") == "1"


def test_old_master_that_lives_on_follows_the_new_one_after_heal():
    with redis_pair() as pair:
        old = pair.master
        pair.cut()
        pair.failover(kill=False)
        assert old.call("SET", "a", "old") == "OK"  # there are now two masters
        assert pair.master.call("SET", "a", "new") == "OK"
        old.freeze()
        pair.heal()
        assert old.call("GET", "a") == "new"


def test_promoted_replica_is_still_master_after_a_restart():
    with redis_pair() as pair:
        pair.failover()
        pair.master.restart()
        assert pair.master.info("replication")["role"] == "master"
        assert pair.master.call("SET", "a", "1") == "OK"


# --------------------------------------------------------------------------- a Sentinel


def test_clients_follow_a_sentinel_to_the_promoted_replica():
    async def play(pair):
        sentinel = redis.asyncio.sentinel.Sentinel(
            [(pair.sentinel.host, pair.sentinel.port)], socket_timeout=2.0
        )
        client = sentinel.master_for(pair.service, password="pw", decode_responses=True)
        await client.set("a", "1")
        pair.wait_replicated()
        pair.master.freeze()
        await asyncio.to_thread(pair.failover, kill=False)
        with pytest.raises(redis.TimeoutError):
            await client.get("a")  # over the connection to the frozen master
        assert await client.get("a") == "1"
        assert await client.set("a", "2")
        pair.replica.kill()
        await asyncio.to_thread(pair.heal)
        assert pair.replica.call("GET", "a") == "2"
        await asyncio.to_thread(
            pair.failover, kill=False
        )  # no master is down, so Sentinel is told to
        assert await client.get("a") == "2"
        await client.aclose()
        for each in sentinel.sentinels:
            await each.aclose()

    with redis_pair(sentinel=True, password="pw", down_after_ms=DOWN_AFTER_MS) as pair:
        assert pair.sentinel_url == f"redis://127.0.0.1:{pair.sentinel.port}"
        with pytest.raises(UsageError, match="is a Sentinel"):
            pair.sentinel.save_copy()
        asyncio.run(play(pair))


def test_sentinel_promotes_a_replica_that_is_behind():
    with redis_pair(sentinel=True, down_after_ms=DOWN_AFTER_MS) as pair:
        pair.master.call("SET", "a", "1")
        pair.wait_replicated()
        pair.cut()
        pair.master.call("SET", "a", "2")
        pair.failover()
        assert pair.master.call("GET", "a") == "1"
