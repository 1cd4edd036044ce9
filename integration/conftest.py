"""What all integration tests share: one real etcd, and a prefix of their own in it.

A test that kills, freezes, compacts or counts revisions starts its own with `local_etcd`.
"""

from __future__ import annotations

import uuid

import pytest

from rink.testing import local_etcd


@pytest.fixture(scope="session")
def etcd_node():
    """One etcd for the whole run, or the one that RINK_TEST_ETCD names."""
    with local_etcd() as node:
        yield node


@pytest.fixture(scope="session")
def etcd_url(etcd_node):
    """Where it answers."""
    return etcd_node.endpoint


@pytest.fixture
def prefix():
    """A key prefix that no other test uses."""
    return f"test-{uuid.uuid4().hex}/"
