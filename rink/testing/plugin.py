"""Give users' tests an etcd, a clock and servers: a pytest plugin.

It is on as soon as `etcd-rink[testing]` is installed. A test takes three lines:

    def test_orders_are_settled_by_the_leader(rink_session):
        with rink.Rink(rink_session, "orders") as r, r.await_role("leader", timeout=1) as role:
            assert settle_orders(role)

Fixtures:
    rink_session: a `rink.Session` on an etcd in memory, in real time.
    rink_etcd: that etcd, a `rink.testing.memory.cluster.MemoryCluster`: more clients, and faults.
    rink_time: a `rink.testing.virtual.VirtualTime`: `advance(3600)` takes a moment.
    rink_server: a real etcd for the whole test session, a `rink.testing.EtcdNode`.
    rink_redis: a real Redis, a `rink.testing.RedisNode`: one for all tests, empty for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # a plugin is loaded before the coverage of its user's code is measured
    from rink import Session
    from rink.testing import EtcdNode, RedisNode
    from rink.testing.memory.cluster import MemoryCluster
    from rink.testing.virtual import VirtualTime


@pytest.fixture
def rink_etcd() -> Iterator[MemoryCluster]:
    """Give an etcd in memory, in real time."""
    from rink.testing.memory.cluster import MemoryCluster

    with MemoryCluster() as cluster:
        yield cluster


@pytest.fixture
def rink_session(rink_etcd: MemoryCluster) -> Iterator[Session]:
    """Give a session on an etcd in memory, with a short ttl."""
    from rink import Session

    session = Session(rink_etcd.client(), ttl=5)
    yield session
    session.close(timeout=5.0)  # a test that failed may still hold a role


@pytest.fixture
def rink_time() -> Iterator[VirtualTime]:
    """Give virtual time: sessions on an etcd in memory, and a clock that moves when told to."""
    from rink.testing.virtual import virtual_time

    with virtual_time() as time:
        yield time


@pytest.fixture(scope="session")
def rink_server() -> Iterator[EtcdNode]:
    """Give a real etcd, started once for all tests that ask for it."""
    from rink.testing import local_etcd

    with local_etcd() as node:
        yield node


@pytest.fixture(scope="session")
def rink_redis_server() -> Iterator[RedisNode]:
    """Give the Redis that `rink_redis` empties, started once; one that was given must be empty."""
    from rink.errors import ConfigError
    from rink.testing import local_redis

    with local_redis() as node:
        if node.is_given and (keys := node.call("DBSIZE")):
            raise ConfigError(
                f"the database at {node.endpoint} (RINK_TEST_REDIS) holds {keys} keys, and the "
                "fixture rink_redis would remove them: name an empty one, redis://host:port/number"
            )
        yield node


@pytest.fixture
def rink_redis(rink_redis_server: RedisNode) -> RedisNode:
    """Give a real Redis without any keys, running, whatever the test before has done to it."""
    if not rink_redis_server.is_given:
        rink_redis_server.thaw()
        rink_redis_server.start()
    rink_redis_server.flush()
    return rink_redis_server
