"""A real etcd, through our client, keeps the contract of every etcd."""

from __future__ import annotations

import time

import pytest
from etcd_contract import *  # noqa: F403 - the suite itself
from etcd_contract_streams import *  # noqa: F403 - its other half
from etcd_world import World

from rink.etcd.client import Client
from rink.testing import local_etcd

pytestmark = pytest.mark.waits


@pytest.fixture(scope="module")
def own_etcd():
    # Not the shared one: revisions are counted here, and history is compacted.
    with local_etcd() as node:
        yield node


@pytest.fixture
def world(own_etcd, prefix):
    def pass_time(seconds):
        time.sleep(seconds)

    with Client([own_etcd.endpoint]) as etcd, Client([own_etcd.endpoint]) as other:
        yield World(etcd, other, prefix.encode(), etcd.compact, pass_time)
