"""Run the contract tests on a real etcd, through Rink's client."""

from __future__ import annotations

import time

import pytest
from etcd_contract import *  # noqa: F403 - tests of calls
from etcd_contract_streams import *  # noqa: F403 - tests of streams
from etcd_world import World

from rink.etcd.client import Client
from rink.testing import local_etcd

pytestmark = pytest.mark.waits


@pytest.fixture(scope="module")
def own_etcd():
    # A server of its own, because the tests count revisions and compact the history.
    with local_etcd() as node:
        yield node


@pytest.fixture
def world(own_etcd, prefix):
    def pass_time(seconds):
        time.sleep(seconds)

    with Client([own_etcd.endpoint]) as etcd, Client([own_etcd.endpoint]) as other:
        yield World(etcd, other, prefix.encode(), etcd.compact, pass_time)
