"""Test the bounds of a step, full partitions, and a Redis in trouble.

This uses a real Redis, without Spark.
"""

import threading

import attrs
import pyarrow as pa
import pytest
import redis
import sink_steps
from pyspark.sql import types as T  # noqa: N812
from sink_steps import Died, DiesAfter, left, published, put_aside, sink

from rink.errors import RinkError, StateError
from rink.redis.errors import RedisOutOfMemory, RedisUnavailable
from rink.spark.options import Options
from rink.spark.redis_connection import RedisConnection, clear_after
from rink.spark.sink import publishing, staging
from rink.spark.sink.publishing import SinkBatch
from rink.spark.sink.staging import Staging, staged
from rink.spark.sink.writers import StreamWriter
from rink.streams.errors import PartitionFull

shop = sink_steps.shop


def test_full_partition_is_waited_for(shop):
    shop.hold("bill")
    ids = shop.add(count=3)
    writing = threading.Thread(
        target=sink(shop, limit=4).commit,
        args=(SinkBatch("x", 0), put_aside(shop, *[(0, f"a{n}") for n in range(5)])),
    )
    writing.start()
    while len(published(shop)) < 4:
        pass
    for at in ids[1:]:
        shop.hold("bill", at=at)
    while len(published(shop)) < 4 or published(shop)[-1] != "a2":
        pass
    shop.hold("bill", at=shop.ids()[-1])
    writing.join()
    assert published(shop)[-1] == "a4"


class Steps(DiesAfter):
    """Record how much each step of publishing moved, and each stage's size."""

    def __init__(self, shop):
        super().__init__(shop, 0)
        self.moved, self.sizes, self.before = [], [], 0

    def run_each(self, name, asked):
        found = self.plain.run_each(name, asked)
        for (_, args, *blobs), answer in zip(asked, found, strict=True):
            if name == "sink/stage":
                self.sizes.append(sum(map(len, *blobs)))
            if name == "sink/publish" and args["max_count"]:  # 0: it only looks
                self.moved.append(answer[1] - self.before)
                self.before = answer[1]
        return found


@pytest.mark.parametrize(
    ("size", "count", "moved"),
    [(10, 2500, [1000, 1000, 500]), (300_000, 10, [4, 4, 2]), (3_000_000, 3, [1, 1, 1])],
)
@pytest.mark.parametrize("loses", [False, True])
def test_step_of_publishing_ends_with_a_thousand_records_or_a_megabyte(
    shop, monkeypatch, size, count, moved, loses
):
    monkeypatch.setattr(publishing, "STEP", 1000)
    steps = Steps(shop)
    records = [f"{n:04}".ljust(size) for n in range(count)]
    manifest = put_aside(shop, *[(0, one) for one in records])
    sink(shop, connection=steps, limit=2500, loses=loses).commit(SinkBatch("x", 0), manifest)
    assert steps.moved == moved
    assert published(shop) == records


@pytest.mark.parametrize(
    ("size", "sizes"),
    [(10, [10_000, 10]), (300_000, [900_000] * 333 + [600_000]), (600_000, [600_000] * 1001)],
)
def test_step_of_staging_is_a_thousand_records_or_a_megabyte(shop, monkeypatch, size, sizes):
    steps = Steps(shop)
    monkeypatch.setattr(steps.plain, "run_each", lambda _, asked: [[b"ok"]] * len(asked))
    staging = Staging(shop.place, steps, 60)
    staging.add((0, bytes(size)) for _ in range(1001))
    staging.end()
    assert steps.sizes == sizes
    assert staging.counts == {0: 1001}


def test_long_lists_are_removed_aside(shop):
    """DEL would keep Redis from serving others while it frees them."""
    shop.redis.config_resetstat()
    sink(shop).drop(put_aside(shop, (0, "a")))
    sink(shop).commit(SinkBatch("x", 0), put_aside(shop, (0, "b")))
    sink(shop).forget([0])
    seen = shop.redis.info("commandstats")
    assert "cmdstat_del" not in seen
    assert seen["cmdstat_unlink"]["calls"] == 3


def test_one_that_stays_full_is_told_and_the_batch_goes_on_later(shop):
    shop.hold("bill")
    manifest = put_aside(shop, *[(0, f"a{n}") for n in range(5)])
    with pytest.raises(PartitionFull, match=r"partition 0 .* holds 3 events"):
        sink(shop, limit=3, patience=0.05).commit(SinkBatch("x", 0), manifest)
    assert published(shop) == ["a0", "a1", "a2"]
    sink(shop, limit=10).commit(
        SinkBatch("x", 0), put_aside(shop, *[(0, f"a{n}") for n in range(5)])
    )
    assert published(shop) == [f"a{n}" for n in range(5)]


def test_retries_while_full_leave_no_more_than_the_first_staged(shop):
    shop.hold("bill")
    records = [(0, f"a{n}") for n in range(5)]
    for _ in range(3):
        with pytest.raises(PartitionFull):
            sink(shop, limit=3, patience=0.01).commit(SinkBatch("x", 0), put_aside(shop, *records))
        assert len(left(shop)) == 1
    with pytest.raises(PartitionFull):  # a later batch is not decided while this one waits
        sink(shop, limit=3, patience=0.01).commit(SinkBatch("x", 1), put_aside(shop, (0, "b")))
    assert len(left(shop)) == 1
    sink(shop, limit=10).commit(SinkBatch("x", 1), put_aside(shop, (0, "b")))
    assert published(shop) == [*[f"a{n}" for n in range(5)], "b"]
    assert left(shop) == []


def test_retries_that_fail_in_publishing_leave_no_more_than_the_first(shop):
    records = [(0, f"a{n}") for n in range(5)]
    with pytest.raises(Died):
        sink(shop, connection=DiesAfter(shop, 1, names=("sink/decide",))).commit(
            SinkBatch("x", 0), put_aside(shop, *records)
        )
    shop.redis.acl_setuser(
        "poor", enabled=True, passwords=["+x"], keys=["*"], commands=["+@all", "-lpop"]
    )
    settings = shop.redis.connection_pool.connection_kwargs
    poor = RedisConnection(
        redis.Redis(host=settings["host"], port=settings["port"], username="poor", password="x"),
        1.0,
    )
    for _ in range(3):
        with pytest.raises(RinkError, match="can't run this command"):
            sink(shop, connection=poor).commit(SinkBatch("x", 0), put_aside(shop, *records))
        assert len(left(shop)) == 1
    sink(shop).commit(SinkBatch("x", 0), put_aside(shop, *records))
    assert (published(shop), left(shop)) == ([f"a{n}" for n in range(5)], [])


def test_lost_batch_leaves_nothing_of_the_tries_to_replace_it(shop):
    shop.hold("bill")
    records = [(0, f"a{n}") for n in range(5)]
    with pytest.raises(PartitionFull):
        sink(shop, limit=3, patience=0.01).commit(SinkBatch("x", 0), put_aside(shop, *records))
    shop.redis.delete(*left(shop))
    with pytest.raises(StateError, match="is gone"):
        sink(shop).commit(SinkBatch("x", 0), put_aside(shop, *records))
    assert left(shop) == []


def test_stream_that_drops_the_oldest_is_never_full(shop):
    manifest = put_aside(shop, *[(0, f"a{n}") for n in range(9)])
    sink(shop, limit=3, loses=True).commit(SinkBatch("x", 0), manifest)
    assert published(shop) == ["a6", "a7", "a8"]


def test_out_of_memory_nothing_is_staged_and_what_is_staged_goes_on(shop):
    manifest = put_aside(shop, (0, "a"), (1, "b"))
    shop.redis.config_set("maxmemory", 1)
    with pytest.raises(RedisOutOfMemory):
        put_aside(shop, (0, "more"))
    sink(shop).commit(SinkBatch("x", 0), manifest)
    assert published(shop) == ["a"]
    assert left(shop) == []


def test_step_of_staging_whose_answer_was_lost_adds_nothing_twice(shop):
    staging = Staging(shop.place, shop.connection, 60)
    key = staged(shop.place, 0, staging.attempt)
    shop.connection.run("sink/stage", (key,), [b"a", b"b"], count=0, kept_s=60)
    staging.add([(0, b"a"), (0, b"b")])
    staging.end()
    assert shop.redis.lrange(key, 0, -1) == [b"a", b"b"]


def test_without_redis_it_says_where_it_looked(shop):
    nowhere = attrs.evolve(shop.place, redis="redis://127.0.0.1:1")
    away = RedisConnection(redis.Redis.from_url(nowhere.redis), 0.1)
    with pytest.raises(RedisUnavailable, match=r"127\.0\.0\.1:1"):
        sink(shop, connection=away).raise_fence()


def test_task_that_fails_removes_what_it_has_put_aside(shop, monkeypatch):
    columns = T.StructType().add("key", "string").add("value", "binary")
    where = {"appName": "shop", "stream": "orders", "redis": shop.url, "name": "q"}
    writer = StreamWriter(Options(where, of_sink=True), columns, overwrite=False)
    monkeypatch.setattr(staging, "MAX_STEP_RECORDS", 1)
    rows = [{"key": f"k{n}", "value": b"x"} for n in range(20)]

    def batches():
        yield pa.RecordBatch.from_pylist(rows)
        assert left(shop)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        writer.write(batches())
    assert left(shop) == []


def test_what_cannot_be_removed_after_an_error_hides_it_not(caplog):
    called = []

    def clear():
        called.append(1)
        raise StateError("no such thing")

    clear_after(StateError("first"), clear)
    assert "left data in Redis, which could not be removed: no such thing" in caplog.text
    clear_after(RedisUnavailable("it would be waited for as long again"), clear)
    assert called == [1]
