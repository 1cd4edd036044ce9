"""Test that `agree` waits for servers to hold the same data."""

import threading

import pytest
from agreement import agree

from rink.etcd.api import Put
from rink.etcd.client import Client
from rink.testing import local_etcd

pytestmark = pytest.mark.waits


def put(node, key):
    with Client([node.endpoint]) as client:
        client.txn((), (Put(key, b"value"),))


def test_agree_waits_for_equal_data_and_fails_on_different_data():
    with local_etcd() as one, local_etcd() as other:
        put(one, b"a")
        assert not agree((one, other), within_s=0.5)
        late = threading.Timer(0.3, put, (other, b"a"))
        late.start()
        assert agree((one, other))
        late.join()
        put(one, b"b")
        put(other, b"c")  # equal numbers of changes, of different keys
        assert not agree((one, other), within_s=0.5)


def test_nodes_of_a_cluster_hold_the_same(cluster):
    put(cluster.nodes[0], b"a")
    assert agree(cluster.nodes)
