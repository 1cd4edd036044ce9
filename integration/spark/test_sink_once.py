"""Test writes that are done once, and remembered for a while."""

import pytest
import sink_steps
from pyspark.sql import types as T  # noqa: N812
from sink_steps import Died, DiesAfter, left, published, put_aside, sink

from rink.errors import StateError
from rink.spark.options import Options
from rink.spark.sink import writers
from rink.spark.sink.publishing import SinkBatch
from rink.spark.sink.writers import BatchWriter, Staged
from rink.streams.errors import PartitionFull

shop = sink_steps.shop

DAYS = 86_400
STATE, MARKS = "rink:{shop/orders}:sink:once:daily", "*:sunk:once:daily"


def once(shop, token=0, **more):
    return sink(shop, token, name="daily", once=True, **more)


def ttl(shop, pattern):
    """Return the least expiry of all such keys; -1 for one without."""
    return min(shop.redis.ttl(key) for key in shop.redis.keys(pattern))


def test_sink_of_a_query_never_expires(shop):
    sink(shop, token=1).raise_fence()
    sink(shop, token=1).commit(SinkBatch("x", 0), put_aside(shop, (0, "a"), (1, "b")))
    found = shop.redis.keys("*:sink:*") + shop.redis.keys("*:sunk:*")
    assert [shop.redis.ttl(key) for key in found] == [-1, -1, -1]


def test_what_is_written_once_is_known_for_thirty_days(shop):
    once(shop, token=1).raise_fence()
    assert 29 * DAYS < ttl(shop, STATE) <= 30 * DAYS
    for _ in range(2):
        once(shop, token=1).commit(SinkBatch("once", 0), put_aside(shop, (0, "a"), (1, "b")))
    assert published(shop) == ["a"]
    assert 29 * DAYS < ttl(shop, "*:sunk:*") <= 30 * DAYS
    assert 29 * DAYS < ttl(shop, STATE) <= ttl(shop, MARKS)
    assert left(shop) == []


def test_query_and_a_write_of_one_name_do_not_know_each_other(shop):
    sink(shop, token=9, name="daily").commit(
        SinkBatch("x", 0), put_aside(shop, (0, "of the query"))
    )
    once(shop, token=1).commit(SinkBatch("once", 0), put_aside(shop, (0, "once")))
    assert published(shop) == ["of the query", "once"]
    assert ttl(shop, "*:sink:daily") == ttl(shop, "*:sunk:daily") == -1


def left_half_way(shop):
    """Run a write that dies with two records of partition 0 in, of 3 of each."""
    records = [*[(0, f"a{n}") for n in range(3)], *[(1, f"b{n}") for n in range(3)]]
    dies = once(shop, token=1, connection=DiesAfter(shop, 2, names=("sink/publish",)))
    with pytest.raises(Died):
        dies.commit(SinkBatch("once", 0), put_aside(shop, *records))
    assert (published(shop), published(shop, 1)) == (["a0", "a1"], [])
    return records


def test_write_that_died_half_way_is_completed_by_its_next_run(shop):
    records = left_half_way(shop)
    again = once(shop, token=2)
    again.raise_fence()
    again.commit(SinkBatch("once", 0), put_aside(shop, *records))
    assert (published(shop), published(shop, 1)) == (["a0", "a1", "a2"], ["b0", "b1", "b2"])


def test_nobody_who_comes_lengthens_what_is_known_of_a_decision(shop):
    """If it outlived the marks, a half published batch would be repeated."""
    records = left_half_way(shop)
    shop.redis.expire(STATE, 5 * DAYS)
    # partition 0 is full: it can continue nowhere
    again = once(shop, token=2, limit=1, patience=0.01)
    shop.hold("bill")
    again.raise_fence()
    with pytest.raises(PartitionFull):
        again.commit(SinkBatch("once", 0), put_aside(shop, *records))
    assert ttl(shop, STATE) <= 5 * DAYS < ttl(shop, MARKS)


def test_lists_that_expired_before_the_decision_did_are_told(shop):
    records = left_half_way(shop)
    shop.redis.delete(*left(shop))
    with pytest.raises(
        StateError, match=r"is gone.*\(records of the batch that were published: 2\)"
    ):
        once(shop, token=2).commit(SinkBatch("once", 0), put_aside(shop, *records))
    assert (published(shop), published(shop, 1)) == (["a0", "a1"], [])


def test_after_its_end_a_write_is_a_new_one(shop):
    records = left_half_way(shop)
    shop.redis.delete(STATE, *left(shop))  # the marks come last
    once(shop, token=1).commit(SinkBatch("once", 0), put_aside(shop, *records))
    assert published(shop) == ["a0", "a1", "a0", "a1", "a2"]
    assert published(shop, 1) == ["b0", "b1", "b2"]


@pytest.mark.parametrize("options", [{"writeId": "daily", "fencingToken": "1"}, {}])
def test_batch_job_that_dies_leaves_nothing_that_has_no_end(shop, monkeypatch, options):
    columns = T.StructType().add("key", "string").add("value", "binary")
    where = {"appName": "shop", "stream": "orders", "redis": shop.url}
    monkeypatch.setattr(
        writers, "connection", lambda _: DiesAfter(shop, 1, names=("sink/publish",))
    )
    writer = BatchWriter(Options({**where, **options}, of_sink=True), columns, overwrite=False)
    messages = [
        Staged("", attempt, counts)
        for attempt, counts in put_aside(shop, *[(0, f"a{n}") for n in range(3)]).items()
    ]
    with pytest.raises(Died):
        writer.commit(messages)
    kept = {key.decode() for key in shop.redis.keys("*")} - {shop.names.about}
    assert len(kept) == 2
    (staged,) = left(shop)
    (state,) = kept - {staged}
    assert shop.redis.ttl(state) > 29 * DAYS
    # Without an id, no run will ever publish it.
    assert shop.redis.ttl(staged) > (29 * DAYS if options else 0.9 * DAYS)
    assert options or shop.redis.ttl(staged) <= DAYS


def test_write_without_id_that_met_a_full_partition_leaves_only_published(
    shop,
):
    columns = T.StructType().add("key", "string").add("value", "binary")
    where = {"appName": "shop", "stream": "orders", "redis": shop.url}
    limits = {"partitionSize": "3", "fullTimeout": "0.05"}
    shop.hold("bill")
    before = {key.decode() for key in shop.redis.keys("*")}
    writer = BatchWriter(Options({**where, **limits}, of_sink=True), columns, overwrite=False)
    records = [(0, f"a{n}") for n in range(5)]
    for _ in range(2):
        messages = [Staged("", *one) for one in put_aside(shop, *records).items()]
        with pytest.raises(PartitionFull, match=r"It has no writeId, so no run continues it"):
            writer.commit(messages)
        writer.abort(messages)
    assert published(shop) == ["a0", "a1", "a2"]
    partition = shop.names.partition(0)
    assert {key.decode() for key in shop.redis.keys("*")} - before <= {
        *partition.keys,
        shop.names.about,
    }
