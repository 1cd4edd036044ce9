"""Test `spark.read` and `spark.readStream` on a real Spark and Redis."""

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

RECORDS = [
    {"order_id": n, "customer": f"c{n % 17}", "amount": n % 5, "note": None if n % 3 else "x"}
    for n in range(500)
]


def plain(rows):
    return sorted((row.asDict() for row in rows), key=lambda row: row["order_id"])


def run(df, folder, each=None):
    """Run a query over what is there now; return the rows of each batch."""
    batches = []

    def note(batch, number):
        batches.append((number, [row.asDict() for row in batch.collect()]))

    query = (
        df.writeStream.foreachBatch(each or note)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [(number, rows) for number, rows in batches if rows]  # batch 0 comes, rows or not


# ── a batch ──────────────────────────────────────────────────────────────────────────────────────


def test_batch_read_has_all_records_once_with_their_columns(shop, spark):
    shop.send(RECORDS)
    df = spark.read.format("rink").options(**shop.options(metadata=False)).load()
    assert df.schema.simpleString() == (
        "struct<order_id:bigint,customer:string,amount:bigint,note:string>"
    )
    assert plain(df.collect()) == RECORDS


def test_metadata_is_of_the_entries_and_each_partition_is_one_task(shop, spark):
    shop.send(RECORDS)
    df = spark.read.format("rink").options(**shop.options()).load()
    assert df.rdd.getNumPartitions() == 4
    seen = [
        [(row._id, row.order_id) for row in df.where(F.col("_partition") == number).collect()]
        for number in range(4)
    ]
    for number, found in enumerate(seen):
        names = shop.module.orders.names.partition(number)
        entries = shop.redis.xrange(names.stream)
        wanted = [(at.decode(), json.loads(fields[b"d"])["order_id"]) for at, fields in entries]
        assert found == wanted
    at = df.select("_id", F.unix_millis("_timestamp").alias("ms")).first()
    assert at._id.startswith(f"{at.ms}-")


def test_batch_read_may_begin_and_end_at_ids(shop, spark):
    shop.send(RECORDS)
    ids = [
        [at.decode() for at, _ in shop.redis.xrange(shop.module.orders.names.partition(n).stream)]
        for n in range(4)
    ]
    edges = {
        "startingOffsets": json.dumps({n: found[4] for n, found in enumerate(ids)}),
        "endingOffsets": json.dumps({n: found[9] for n, found in enumerate(ids)}),
    }
    df = spark.read.format("rink").options(**shop.options(**edges)).load()
    assert sorted(row._id for row in df.collect()) == sorted(
        at for found in ids for at in found[5:10]
    )


def test_rich_records_come_with_their_types(shop, spark):
    made = shop.module.rich
    record = made.record(
        name="a", at="2026-01-02T03:04:05+00:00", tags=["x"], parts={"p": 1},
        first=shop.module.Total(customer="c", total=2),
    )  # fmt: skip
    shop.redis.hset(made.names.about, mapping={"format": 1, "partitions": 2})
    first = {"customer": "c", "total": 2}
    data = json.dumps(
        {"name": "a", "at": record.at, "tags": ["x"], "parts": {"p": 1}, "first": first}
    )
    shop.redis.xadd(made.names.partition(0).stream, {"d": data})
    df = spark.read.format("rink").options(**shop.options("rich", metadata=False)).load()
    at = F.date_format("at", "yyyy-MM-dd HH:mm:ss").alias("at")
    row = df.select("name", at, "tags", "parts", "first").first()
    assert row.asDict(recursive=True) == {
        "name": "a",
        "at": "2026-01-02 03:04:05",
        "tags": ["x"],
        "parts": {"p": 1},
        "first": {"customer": "c", "total": 2, "count": 0},
    }
    asked = spark.read.format("rink").schema(
        "first struct<total:bigint>, tags array<string>, name string"
    )
    (row,) = asked.options(**shop.options("rich")).load().collect()
    assert row.asDict(recursive=True) == {"first": {"total": 2}, "tags": ["x"], "name": "a"}


# ── a query ──────────────────────────────────────────────────────────────────────────────────────


def test_query_reads_each_event_once_over_restarts(shop, spark, tmp_path):
    df = spark.readStream.format("rink").options(
        **shop.options(group="q", maxOffsetsPerTrigger=120, metadata=False)
    )
    shop.send(RECORDS[:300])
    first = run(df.load(), tmp_path / "q")
    assert [len(rows) for _, rows in first] == [120, 120, 60]
    assert run(df.load(), tmp_path / "q") == []
    shop.send(RECORDS[300:])
    second = run(df.load(), tmp_path / "q")
    assert [number for number, _ in second] == [3, 4]
    every = [row for _, rows in first + second for row in rows]
    assert sorted(every, key=lambda row: row["order_id"]) == RECORDS


def test_batch_that_failed_is_read_again_as_it_was(shop, spark, tmp_path):
    shop.send(RECORDS)
    df = spark.readStream.format("rink").options(
        **shop.options(group="q", maxOffsetsPerTrigger=200)
    )
    tried = []

    def fails_once(batch, number):
        tried.append((number, sorted(row.order_id for row in batch.collect())))
        if len(tried) == 2:
            raise RuntimeError("on purpose")

    with pytest.raises(PySparkException, match="on purpose"):
        run(df.load(), tmp_path / "q", fails_once)
    shop.send(RECORDS[:10])
    run(df.load(), tmp_path / "q", fails_once)
    assert tried[1] == tried[2]
    assert sum(len(ids) for _, ids in tried) == 510 + 200


def test_trimming_waits_for_what_the_checkpoint_needs(shop, spark, tmp_path):
    shop.send(RECORDS, hold=False)
    df = spark.readStream.format("rink").options(
        **shop.options(group="q", maxOffsetsPerTrigger=200)
    )
    run(df.load(), tmp_path / "q")
    # Spark never commits the last batch of a run, but asks once more for what comes after it.
    assert [len(rows) for rows in shop.rows()] == [1, 1, 1, 1]


@pytest.mark.deep
def test_trimming_waits_for_a_batch_that_failed(shop, spark, tmp_path):
    shop.send(RECORDS, hold=False)
    df = spark.readStream.format("rink").options(
        **shop.options(group="q", maxOffsetsPerTrigger=200)
    )

    def fails(batch, number):
        if number == 1:
            raise RuntimeError("on purpose")

    with pytest.raises(PySparkException, match="on purpose"):
        run(df.load(), tmp_path / "q", fails)
    assert sum(len(rows) for rows in shop.rows()) == 300 + 4
    found = run(df.load(), tmp_path / "q")
    assert sum(len(rows) for _, rows in found) == 300


@pytest.mark.deep
def test_latest_means_from_the_start_of_the_query_on(shop, spark, tmp_path):
    shop.send(RECORDS[:100])
    df = spark.readStream.format("rink").options(
        **shop.options(group="q", startingOffsets="latest")
    )
    assert run(df.load(), tmp_path / "q") == []
    shop.send(RECORDS[100:130])
    found = [row["order_id"] for _, rows in run(df.load(), tmp_path / "q") for row in rows]
    assert sorted(found) == list(range(100, 130))


def test_available_now_leaves_later_events_for_the_next_run(shop, spark, tmp_path):
    shop.send(RECORDS[:100])
    df = spark.readStream.format("rink").options(**shop.options(group="q", maxOffsetsPerTrigger=40))
    seen = []

    def sends_more(batch, number):
        seen.append(sorted(row.order_id for row in batch.collect()))
        if number == 0:
            shop.send(RECORDS[100:130])

    run(df.load(), tmp_path / "q", sends_more)
    assert sorted(n for ids in seen for n in ids) == list(range(100))
    assert [len(ids) for ids in seen if ids] == [40, 40, 20]
    run(df.load(), tmp_path / "q", sends_more)
    assert sorted(n for ids in seen for n in ids) == list(range(130))


@pytest.mark.deep
def test_stream_that_is_empty_is_no_trouble(shop, spark, tmp_path):
    shop.send([])
    assert spark.read.format("rink").options(**shop.options()).load().collect() == []
    df = spark.readStream.format("rink").options(**shop.options(group="q"))
    assert run(df.load(), tmp_path / "q") == []
    shop.send(RECORDS[:3])
    assert len(run(df.load(), tmp_path / "q")[0][1]) == 3


# ── bad input ────────────────────────────────────────────────────────────────────────────────────


def refused(shop, spark, tmp_path, told, **options):
    given = {"group": "q", **options}
    with pytest.raises(PySparkException, match=told):
        run(spark.readStream.format("rink").options(**shop.options(**given)).load(), tmp_path / "q")


@pytest.mark.deep
def test_bad_input_of_a_query_is_told(shop, spark, tmp_path):
    shop.send(RECORDS[:5])
    refused(shop, spark, tmp_path, "cannot be loaded", app="no_such_app:app")
    refused(shop, spark, tmp_path, "has no stream 'none'", stream="none")
    refused(shop, spark, tmp_path, "the option group is empty", group="")
    refused(shop, spark, tmp_path, "no option speed", speed=5)
    refused(
        shop, spark, tmp_path, r"127\.0\.0\.1:1.*cannot be reached",
        redis="redis://127.0.0.1:1", redisTimeout=0.2,
    )  # fmt: skip
    with pytest.raises(PySparkException, match=r"has no .*no key"):
        spark.read.format("rink").options(
            appName="nobody", stream="orders", redis=shop.url
        ).load().count()
    with pytest.raises(
        PySparkException, match="no column 'amount' of type string; it has order_id"
    ):
        spark.read.format("rink").schema("amount string").options(**shop.options()).load().count()


@pytest.mark.deep
def test_record_that_does_not_match_is_named_and_nothing_goes_on(shop, spark, tmp_path):
    shop.send(RECORDS[:5])
    shop.send([], stream="totals")
    shop.redis.xadd(shop.module.orders.names.partition(2).stream, {"d": b'{"order_id":"x"}'})
    refused(shop, spark, tmp_path, "event .* of partition 2 of stream 'orders'.*order_id")
    orders = spark.readStream.format("rink").options(**shop.options(group="to-totals")).load()
    totals = orders.select("customer", F.col("order_id").alias("total")).writeStream.format("rink")
    totals = totals.options(**shop.options("totals", name="to-totals"))
    totals = totals.option("checkpointLocation", str(tmp_path / "to-totals"))
    with pytest.raises(PySparkException, match=r"event .* of partition 2 of stream 'orders'"):
        totals.trigger(availableNow=True).start().awaitTermination()
    assert shop.every("totals") == []
    for number in range(4):
        offsets = shop.redis.hgetall(shop.module.orders.names.partition(number).offsets)
        assert offsets[b"spark/q"] == offsets[b"spark/to-totals"] == b"0-0"
    raw = spark.read.format("rink").options(**shop.options(record="raw")).load()
    assert raw.count() == 6


@pytest.mark.deep
def test_checkpoint_of_another_partition_count_is_told(shop, spark, tmp_path):
    shop.send(RECORDS[:5])
    run(spark.readStream.format("rink").options(**shop.options(group="q")).load(), tmp_path / "q")
    shop.send([], stream="totals")
    refused(shop, spark, tmp_path, "offsets of 4 partitions, but .* has 3", stream="totals")


@pytest.mark.deep
def test_events_that_are_gone_are_an_error_and_may_be_passed_over(shop, spark, tmp_path):
    shop.send(RECORDS[:100])
    df = spark.readStream.format("rink").options(**shop.options(group="q"))
    run(df.load(), tmp_path / "q")
    shop.send(RECORDS[100:200])
    for number in range(4):
        names = shop.module.orders.names.partition(number)
        shop.redis.xtrim(names.stream, maxlen=2, approximate=False)
    refused(shop, spark, tmp_path, "are gone before they were read")
    found = run(df.option("failOnDataLoss", "false").load(), tmp_path / "q")
    assert sum(len(rows) for _, rows in found) == 8


@pytest.mark.deep
def test_two_queries_with_one_name_are_told_apart(shop, spark, tmp_path):
    shop.send(RECORDS[:100])
    df = spark.readStream.format("rink").options(**shop.options(group="q", maxOffsetsPerTrigger=50))
    run(df.load(), tmp_path / "one")
    refused(shop, spark, tmp_path, "in use by a query with another checkpoint")
