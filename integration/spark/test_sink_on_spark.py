"""Test `df.write` and `df.writeStream` of a real Spark on a real Redis."""

import shutil

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from spark_support import forget_last_commit

from rink.errors import StaleToken
from rink.guards import Fence
from rink.spark import FencedStream

RECORDS = [{"order_id": n, "customer": f"c{n % 17}", "amount": n % 5} for n in range(300)]


def totals(df):
    return df.select("customer", F.col("order_id").alias("total"), F.col("amount").alias("count"))


def wanted(records):
    return sorted(
        [
            {"customer": r["customer"], "total": r["order_id"], "count": r["amount"]}
            for r in records
        ],
        key=lambda row: row["total"],
    )


def found(shop):
    return sorted(shop.every("totals"), key=lambda row: row["total"])


def start(shop, spark, folder, source=None, **sink):
    df = (
        spark.readStream.format("rink")
        .options(**shop.options(group="q", maxOffsetsPerTrigger=120, **(source or {})))
        .load()
    )
    return (
        totals(df)
        .writeStream.format("rink")
        .options(**shop.options("totals", **{"name": "q", **sink}))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )


@pytest.fixture
def streams(shop):
    shop.send(RECORDS)
    shop.send([], stream="totals")
    return shop


def test_batch_is_written_to_the_partitions_of_its_keys(streams, spark):
    df = spark.createDataFrame(RECORDS)
    totals(df).write.format("rink").options(**streams.options("totals")).mode("append").save()
    assert found(streams) == wanted(RECORDS)
    made = streams.module.totals
    for number, rows in enumerate(streams.rows("totals")):
        assert all(made.partition_of(made.record(**row)) == number for row in rows)
    assert streams.staged() == []
    assert not streams.redis.keys("*:sunk:*")
    assert not streams.redis.keys("*:sink:*")


def test_batch_with_an_id_is_written_once_however_often_its_job_runs(streams, spark):
    df = totals(spark.createDataFrame(RECORDS))
    for _ in range(2):
        options = streams.options("totals", writeId="daily 2026-11-23", fencingToken=5)
        df.write.format("rink").options(**options).mode("append").save()
    assert found(streams) == wanted(RECORDS)
    stale = streams.options("totals", writeId="daily 2026-11-23", fencingToken=4)
    with pytest.raises(PySparkException, match="belongs to a later driver"):
        df.write.format("rink").options(**stale).mode("append").save()


def test_query_writes_each_batch_once_over_restarts(streams, spark, tmp_path):
    start(streams, spark, tmp_path, fencingToken=5).awaitTermination()
    assert found(streams) == wanted(RECORDS)
    forget_last_commit(tmp_path)
    start(streams, spark, tmp_path, fencingToken=6).awaitTermination()
    assert found(streams) == wanted(RECORDS)
    assert streams.staged() == []


@pytest.mark.deep
def test_checkpoint_restored_from_a_backup_is_refused(streams, spark, tmp_path):
    backup, folder = tmp_path / "backup", tmp_path / "q"
    start(streams, spark, folder).awaitTermination()
    shutil.copytree(folder, backup)
    more = [dict(record, order_id=n) for n, record in enumerate(RECORDS, start=300)]
    streams.send(more)
    start(streams, spark, folder).awaitTermination()
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    late = [dict(record, order_id=n) for n, record in enumerate(RECORDS, start=600)]
    streams.send(late)
    with pytest.raises(PySparkException, match=r"StateError: sink 'q' .* was rolled back"):
        start(streams, spark, folder).awaitTermination()
    assert found(streams) == wanted(RECORDS + more)
    assert streams.staged() == []


@pytest.mark.deep
def test_stale_driver_is_refused_before_it_writes(streams, spark, tmp_path):
    FencedStream(**streams.options("totals")).raise_fence(Fence("q", 9))
    with pytest.raises(StaleToken):
        FencedStream(**streams.options("totals")).raise_fence(Fence("q", 8))
    with pytest.raises(PySparkException, match=r"rink\.errors\.StaleToken"):
        start(streams, spark, tmp_path, fencingToken=8).awaitTermination()
    assert streams.every("totals") == []
    start(streams, spark, tmp_path, fencingToken=10).awaitTermination()
    assert found(streams) == wanted(RECORDS)


def test_task_that_fails_leaves_nothing_behind(streams, spark, tmp_path):
    df = totals(spark.createDataFrame(RECORDS)).withColumn(
        "customer", F.when(F.col("total") == 299, F.lit("")).otherwise(F.col("customer"))
    )
    with pytest.raises(PySparkException, match="has no partition key"):
        df.write.format("rink").options(**streams.options("totals")).mode("append").save()
    assert streams.every("totals") == []
    assert all(streams.redis.ttl(key) > 0 for key in streams.staged())


@pytest.mark.parametrize(
    ("change", "options", "told"),
    [
        (lambda df: df.drop("total"), {}, "does not match Total.*total is missing"),
        (lambda df: df.withColumn("more", F.lit(1)), {}, "more int is no column of it"),
        (lambda df: df.withColumn("total", F.lit("x")), {}, "total string is no column of it"),
        (lambda df: df, {"record": "raw"}, "`key` string and `value`"),
        (lambda df: df, {"writeId": ""}, "writeId is empty"),
        (lambda df: df, {"fencingToken": 5}, "needs the option writeId"),
        (lambda df: df, {"stream": "none"}, "has no stream 'none'"),
    ],
)
def test_bad_input_is_told_before_anything_is_written(streams, spark, change, options, told):
    df = change(totals(spark.createDataFrame(RECORDS[:5])))
    write = (
        df.write.format("rink").options(**{**streams.options("totals"), **options}).mode("append")
    )
    with pytest.raises(PySparkException, match=told):
        write.save()
    assert streams.every("totals") == []


@pytest.mark.parametrize("streaming", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_who_writes_a_stream_first_settles_its_partition_count(shop, spark, tmp_path, streaming):
    shop.send(RECORDS)
    about = shop.module.totals.names.about
    if streaming:
        start(shop, spark, tmp_path).awaitTermination()
    else:
        df = totals(spark.createDataFrame(RECORDS))
        df.write.format("rink").options(**shop.options("totals")).mode("append").save()
    assert shop.redis.hget(about, "partitions") == b"3"
    by_name = {"appName": "shop", "stream": "totals", "redis": shop.url}
    assert spark.read.format("rink").options(**by_name).load().count() == len(RECORDS)


def test_bytes_are_written_with_their_key(streams, spark):
    df = spark.createDataFrame([{"key": "ann", "value": '{"customer":"ann","total":1}'}])
    options = {"appName": "shop", "stream": "totals", "redis": streams.url}
    df.write.format("rink").options(**options).mode("append").save()
    assert streams.every("totals") == [{"customer": "ann", "total": 1}]
    made = streams.module.totals
    number = made.partition_of(made.record(customer="ann", total=1))
    assert len(streams.rows("totals")[number]) == 1


def test_stream_is_appended_to_and_never_overwritten(streams, spark):
    df = totals(spark.createDataFrame(RECORDS[:5]))
    with pytest.raises(PySparkException, match="appended to"):
        df.write.format("rink").options(**streams.options("totals")).mode("overwrite").save()
