"""The Redis servers that tests start: they break as told, keep their data, and go back to older data."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import subprocess
import sys
import threading
import time

import pytest
import redis
import trustme
from processes import is_alive, thread_states

from rink.errors import ConfigError, RedisError, RedisUnavailable, UsageError
from rink.testing import TlsFiles, local_redis, redis_cluster, redis_start, servers_ports

pytestmark = pytest.mark.usefixtures("no_given_redis")


@contextlib.contextmanager
def client_of(url, **settings):
    """A client as users have it, one that does not try again."""
    settings = {"socket_timeout": 0.5, "decode_responses": True, "retry": None, **settings}
    with redis.Redis.from_url(url, **settings) as client:
        yield client


# --------------------------------------------------------------------------- one node


def test_a_killed_node_has_its_data_and_address_again():
    with local_redis() as node, client_of(node.url) as client:
        client.set("a", "1")
        pid, url = node.pid, node.url
        node.kill()
        assert not node.is_running
        assert node.pid is None
        assert not is_alive(pid)
        with pytest.raises(redis.ConnectionError):
            client.get("a")
        node.kill()
        node.start()
        assert node.url == url
        assert client.get("a") == "1"
        node.restart()
        assert client.get("a") == "1"
        assert node.pid != pid


def test_a_frozen_node_answers_nothing_until_it_is_thawed():
    with local_redis() as node, client_of(node.url) as client:
        client.set("a", "1")
        node.freeze()
        assert thread_states(node.pid) == {"T"}
        assert node.is_running
        assert node.is_frozen
        assert not node.is_healthy
        with pytest.raises(redis.TimeoutError):
            client.get("a")
        node.thaw()
        assert not node.is_frozen
        node.wait_healthy()
        assert client.get("a") == "1"


def test_a_cluster_serves_all_slots_and_says_where_a_key_is():
    with redis_cluster(3) as cluster:
        assert len(cluster.urls) == 3
        one, other = cluster.node_of("a"), cluster.node_of("b")
        assert one is not other
        with client_of(one.url) as client:
            assert client.set("a", "1")
            with pytest.raises(redis.exceptions.MovedError, match=rf"127.0.0.1:{other.port}"):
                client.set("b", "1")
        with redis.RedisCluster.from_url(cluster.urls[0], decode_responses=True) as client:
            for i in range(100):
                client.set(f"key-{i}", i)
            assert [int(client.get(f"key-{i}")) for i in range(100)] == list(range(100))
        assert all(int(node.call("DBSIZE")) > 10 for node in cluster.nodes)
