"""Give users' tests an etcd, a clock and servers, as a pytest plugin.

pytest loads the plugin if Rink is installed. A test takes three lines:

    def test_orders_are_settled_by_the_leader(rink_session):
        with rink.Rink(rink_session, "orders") as r, r.await_role("leader", timeout=1) as role:
            assert settle_orders(role)

Fixtures:
    rink_session: a `rink.Session` on an etcd in memory, in real time.
    rink_etcd: the etcd of `rink_session`, a `MemoryCluster`, for more clients and faults.
    rink_time: a `rink.testing.virtual.VirtualTime`, in which `advance(3600)` takes a moment.
    rink_server: a real etcd, a `rink.testing.EtcdNode`, one for all tests and running for each.
    rink_redis: a real Redis, a `rink.testing.RedisNode`, one for all tests and empty for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar

import pytest

# A plugin is loaded before the coverage of the user's code is measured, so it imports Rink late.
if TYPE_CHECKING:
    from rink import Session
    from rink.testing import EtcdNode, RedisNode
    from rink.testing.memory.cluster import MemoryCluster
    from rink.testing.virtual import VirtualTime

S = TypeVar("S", "EtcdNode", "RedisNode")


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
    """Give sessions on an etcd in memory, with a virtual clock."""
    from rink.testing.virtual import virtual_time

    with virtual_time() as time:
        yield time


@pytest.fixture(scope="session")
def rink_etcd_server() -> Iterator[EtcdNode]:
    """Start the etcd of `rink_server`, once for all tests."""
    from rink.testing import local_etcd

    with local_etcd() as node:
        yield node


@pytest.fixture
def rink_server(rink_etcd_server: EtcdNode) -> EtcdNode:
    """Give a running real etcd; restart it if the last test broke it."""
    return _running(rink_etcd_server)


@pytest.fixture(scope="session")
def rink_redis_server() -> Iterator[RedisNode]:
    """Start the Redis of `rink_redis`, once for all tests.

    The server at RINK_TEST_REDIS must be empty, because `rink_redis` removes all keys.
    """
    from rink.errors import ConfigError
    from rink.plural import plural
    from rink.testing import local_redis

    with local_redis() as node:
        if node.is_given and (keys := node.call("DBSIZE")):
            has = f"{node.endpoint} holds {keys} {plural(keys, 'key')}"
            raise ConfigError(
                f"the database of RINK_TEST_REDIS at {has}, which the fixture rink_redis would "
                "remove: name an empty one, redis://host:port/number"
            )
        yield node


@pytest.fixture
def rink_redis(rink_redis_server: RedisNode) -> RedisNode:
    """Give a running real Redis without keys.

    Restart it if the last test broke it.
    """
    _running(rink_redis_server).flush()
    return rink_redis_server


def _running(server: S) -> S:
    if not server.is_given:
        server.thaw()
        server.start()
    return server
