"""Compare the data of a cluster's nodes.

etcd 3.5.0 to 3.5.2 may permanently bring a killed node back with other data than the rest. A test
that goes on with such a cluster would blame Rink: its members see versions and leases come and go
with the node that they talk to.
"""

import time

from rink.etcd.client import Client

WITHIN_S = 10.0
"""A lease that ends between two looks makes a difference as well, which passes."""


def agree(nodes, within_s=WITHIN_S):
    """Wait until the keys of all nodes are the same.

    Return False if they still differ when the time is over.
    """
    end = time.monotonic() + within_s
    while len({_held_by(node) for node in nodes}) > 1:
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _held_by(node):
    with Client([node.endpoint]) as client:
        found = client.range(b"\0", b"\0")
    return found.header.revision, tuple((kv.key, kv.mod_revision) for kv in found.kvs)
