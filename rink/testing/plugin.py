"""A pytest plugin, on as soon as `rink[testing]` is installed: a test of yours takes three lines.

    def test_orders_are_settled_by_the_leader(rink_session):
        with rink.Rink(rink_session, "orders") as r, r.await_role("leader", timeout=1) as role:
            assert settle_orders(role)

Fixtures:
    rink_session: a `rink.Session` on an etcd in memory, in real time.
    rink_etcd: that etcd, a `rink.testing.memory.MemoryCluster`: more clients, and faults.
    rink_time: a `rink.testing.virtual.VirtualTime`: `advance(3600)` takes a moment.
    rink_server: a real etcd for the whole test session, a `rink.testing.EtcdNode`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:  # a plugin is loaded before the coverage of its user's code is measured
    from rink import Session
    from rink.testing import EtcdNode
    from rink.testing.memory import MemoryCluster
    from rink.testing.virtual import VirtualTime


@pytest.fixture
def rink_etcd() -> Iterator[MemoryCluster]:
    """Give an etcd in memory, in real time."""
    from rink.testing.memory import MemoryCluster

    with MemoryCluster() as cluster:
        yield cluster


@pytest.fixture
def rink_session(rink_etcd: MemoryCluster) -> Iterator[Session]:
    """Give a session on an etcd in memory, with a short ttl."""
    from rink import Session

    session = Session(rink_etcd.client(), ttl=5)
    yield session
    session.close_within(5.0)  # a test that failed may still hold a role


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
