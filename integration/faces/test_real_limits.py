"""Test an etcd that allows fewer operations in a transaction."""

import pytest

import rink
from rink.core import codec
from rink.core.keys import Keys
from rink.core.values import Request, Wish
from rink.etcd.api import Put
from rink.partitions import PartitionedConsumer
from rink.testing import local_etcd

pytestmark = pytest.mark.waits


@pytest.fixture
def narrow():
    """Return the endpoint of an etcd that takes 20 operations in a txn."""
    with local_etcd(fsync=False, extra_args=("--max-txn-ops", "20")) as node:
        yield node.endpoint


def test_burst_of_requests_passes_and_ranks_do_not_wait(narrow):
    """A burst of requests passes, and ranks do not wait.

    Versions once stopped, so no member was ranked either.
    """
    keys = Keys.of("rink/", "g")
    pins = [codec.encode(Request(wish=Wish.PIN, role=f"p{n}", member="a")) for n in range(60)]
    with rink.Session(narrow) as one, rink.Session(narrow) as two:
        for first in range(0, 60, 20):
            puts = [Put(keys.request(f"{n}"), pins[n]) for n in range(first, first + 20)]
            one.etcd.txn((), tuple(puts))
        settings = {"initial_delay": 0, "rebalance_delay": 0}
        with (
            rink.Rink(one, "g", name="a", **settings) as a,
            rink.Rink(two, "g", name="b", **settings),
        ):
            for version in a.versions():
                if len(version.pins) == 60 and len(version.ranks) == 2:
                    break
            assert version.number < 12
            assert a.status().requests == ()


def test_many_partitions_are_taken_over_at_once(narrow, caplog):
    """Many partitions are taken over at once.

    Each take of 32 was once refused, and its partitions had to wait.
    """
    with (
        rink.Session(narrow) as session,
        rink.Rink(session, "g", initial_delay=0, scheme="balanced:300") as r,
        PartitionedConsumer(r, "orders", partitions=300) as consumer,
    ):
        assert {consumer.next_change(20).partition for _ in range(300)} == set(range(300))
    assert "taking over failed" not in caplog.text
