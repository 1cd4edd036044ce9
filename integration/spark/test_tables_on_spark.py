"""Test streams as tables of Spark's catalog, as a new user meets them."""

from decimal import Decimal

import pytest
from pyspark.errors import PySparkException

RECORDS = [{"order_id": n, "customer": f"c{n % 17}", "amount": n % 5} for n in range(60)]


@pytest.fixture
def tables(spark):
    """Yield names of tables; drop the tables at the end."""
    names = ["shop_orders", "shop_totals", "shop_small"]
    yield names
    for name in names:
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def options_of(shop, **given):
    return ", ".join(f"{name} '{value}'" for name, value in shop.options(**given).items())


def create(spark, shop, name, **given):
    spark.sql(f"CREATE TABLE {name} USING rink OPTIONS ({options_of(shop, **given)})")


@pytest.fixture
def tells_cases_apart(spark):
    """Make a session distinguish case, within a test."""

    def switch():
        spark.conf.set("spark.sql.caseSensitive", "true")

    yield switch
    spark.conf.unset("spark.sql.caseSensitive")


# ── tables ───────────────────────────────────────────────────────────────────────────────────────


def test_created_table_is_read_by_sql_and_as_a_query(shop, spark, tables, tmp_path):
    shop.send(RECORDS)
    create(spark, shop, "shop_orders", startingOffsets="earliest")
    (row,) = spark.sql("SELECT count(*) AS n, sum(amount) AS total FROM shop_orders").collect()
    assert (row.n, row.total) == (60, sum(one["amount"] for one in RECORDS))
    joined = spark.sql("SELECT a.Order_ID FROM shop_orders a JOIN shop_orders b USING (order_id)")
    assert joined.count() == 60
    late = spark.sql("SELECT * FROM shop_orders WITH (startingTimestamp = '2100-01-01 00:00 UTC')")
    assert late.count() == 0
    query = (
        spark.readStream.option("group", "q").table("shop_orders").writeStream.format("memory")
        .queryName("read_as_a_query").option("checkpointLocation", str(tmp_path / "q"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    assert spark.table("read_as_a_query").count() == 60
    # A query over an ordinary read carries no options.
    plain = spark.read.format("rink").options(**shop.options()).load()
    assert all(not field.metadata for field in plain.schema)


def test_view_and_path_name_a_stream(shop, spark):
    shop.send(RECORDS)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW orders_view USING rink OPTIONS ({options_of(shop)})"
    )
    assert spark.table("orders_view").count() == 60
    where = shop.options()
    where.pop("stream")
    assert spark.read.format("rink").options(**where).load("orders").count() == 60
    with pytest.raises(PySparkException, match=r"no stream 'others'; it has .*'orders'"):
        spark.read.format("rink").options(**where).load("others")
    with pytest.raises(PySparkException, match="reads one stream"):
        spark.read.format("rink").options(**where).load(["orders", "totals"])


@pytest.mark.parametrize(
    "write",
    [
        "INSERT INTO shop_small SELECT * FROM shop_totals",
        "INSERT INTO shop_small VALUES ('ann', 7, 1)",
        "INSERT INTO shop_small (customer, total, count) SELECT 'ann', 7L, 1L",
        lambda spark: spark.table("shop_totals").writeTo("shop_small").append(),
        lambda spark: spark.table("shop_totals").write.format("rink").mode("append").save(),
    ],
)
def test_write_without_options_of_its_own_is_refused(shop, spark, tables, write):
    """Spark passes the columns of what is written.

    With their options, rows came back to where they were read.
    """
    shop.send([{"customer": "ann", "total": 7}], stream="totals", hold=False)
    shop.send([], stream="small", hold=False)
    for name in ("totals", "small"):
        create(spark, shop, f"shop_{name}", stream=name, metadata="false")
    with pytest.raises(PySparkException, match=r"Nothing was written.*df\.write\.format"):
        spark.sql(write) if isinstance(write, str) else write(spark)
    assert (len(shop.every("totals")), shop.every("small")) == (1, [])


def test_rows_of_a_table_are_written_where_the_options_say(shop, spark, tables):
    shop.send([{"customer": "ann", "total": 7}], stream="totals", hold=False)
    shop.send([], stream="small", hold=False)
    create(spark, shop, "shop_totals", stream="totals", metadata="false", record="spark_shop:Total")
    rows = spark.table("shop_totals").write.format("rink").mode("append")
    rows.options(**shop.options("small")).save()
    assert shop.every("small") == shop.every("totals")


def test_table_that_cannot_be_says_why(shop, spark, tables):
    with pytest.raises(PySparkException, match=r"no option strem \(did you mean stream\?\)"):
        spark.sql("CREATE TABLE shop_orders USING rink OPTIONS (app 'spark_shop:app', strem 'x')")
    with pytest.raises(PySparkException, match="has a password"):
        create(spark, shop, "shop_orders", redis="redis://:secret@host")
    with pytest.raises(PySparkException, match="give one of the options app"):
        spark.sql("CREATE TABLE shop_orders USING rink")
    spark.sql(f"CREATE TABLE shop_orders (customer STRING) USING rink OPTIONS ({options_of(shop)})")
    with pytest.raises(PySparkException, match="without a list of columns"):
        spark.table("shop_orders").count()


# ── types and names ──────────────────────────────────────────────────────────────────────────────


def test_prices_go_in_and_out_as_decimals_and_times_without_zone(shop, spark):
    shop.send([], stream="prices", hold=False)
    rows = spark.sql(
        "SELECT * FROM VALUES ('a', 12.30BD, TIMESTAMP_NTZ'2026-01-01 12:00:00'),"
        " ('b', CAST('-0.01' AS DECIMAL(30, 2)), NULL) AS t(ITEM, Price, at)"
    )
    rows.write.format("rink").mode("append").options(**shop.options("prices")).save()
    reader = spark.read.format("rink").options(**shop.options("prices", metadata=False))
    found = sorted(reader.load().selectExpr("item", "PRICE", "CAST(at AS STRING) AS at").collect())
    assert [tuple(row) for row in found] == [
        ("a", Decimal("12.300000000000000000"), "2026-01-01 12:00:00"),
        ("b", Decimal("-0.010000000000000000"), None),
    ]
    asked = reader.schema("Price decimal(12, 2), AT timestamp_ntz").load()
    assert asked.schema.simpleString() == "struct<Price:decimal(12,2),AT:timestamp_ntz>"
    assert {row.Price for row in asked.collect()} == {Decimal("12.30"), Decimal("-0.01")}
    with pytest.raises(
        PySparkException, match=r"value of 'price' does not fit its column .*decimal"
    ):
        reader.schema("price decimal(12, 1)").load().collect()


def test_names_have_any_case_unless_the_session_tells_cases_apart(shop, spark, tells_cases_apart):
    shop.send(RECORDS[:3])
    asked = spark.read.format("rink").schema("CUSTOMER string").options(**shop.options())
    assert sorted(row.CUSTOMER for row in asked.load().collect()) == ["c0", "c1", "c2"]
    tells_cases_apart()
    with pytest.raises(PySparkException, match=r"spark\.sql\.caseSensitive is true"):
        asked.load().collect()


# ── a window, and what was trimmed ───────────────────────────────────────────────────────────────


def test_window_of_which_two_events_are_left_is_no_count_of_two(shop, spark):
    """A nightly job counts a day of 2,000 events, of which a trim left 2."""
    stream = shop.module.orders.names.partition(0).stream
    shop.send([])
    with shop.redis.pipeline() as pipeline:
        for n in range(2000):
            data = f'{{"order_id":{n},"customer":"c"}}'
            pipeline.xadd(stream, {"d": data}, id=f"{1_767_225_600_000 + n}-0")
        pipeline.xtrim(stream, maxlen=2, approximate=False)
        pipeline.execute()
    window = {"startingTimestamp": "2026-01-01", "endingTimestamp": "2026-01-02", "timeZone": "UTC"}
    day = spark.read.format("rink").options(**shop.options(**window))
    with pytest.raises(PySparkException, match=r"1998 events were removed, and the first one left"):
        day.load().count()
    assert day.option("failOnDataLoss", "false").load().count() == 2
    later = {**window, "startingTimestamp": "2026-01-01 00:00:01.999"}
    assert spark.read.format("rink").options(**shop.options(**later)).load().count() == 1
