"""Define the query, as a user of `rink.spark` does.

Flights come from a stream, are joined with the weather, and are added up for each day, carrier,
airport and kind of weather. Totals are counted up in Redis, and the results of each batch are added
to a Parquet directory. Both go through a guard.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from common.flights_file import file_of
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql.streaming.query import StreamingQuery

from pipeline_demo import weather
from rink.guards import Guard
from rink.spark import FencedBatch, Job, fence, fenced

PARTS = 4
MEASURES = ("flights", "cancelled", "delay")
GRAIN = ("day", "carrier", "origin", "wind", "visibility")
STREAM = {"app": "pipeline_demo.flights:app", "stream": "flights", "metadata": "false"}
# It is standard time all year, so that each day has 24 hours.
NEW_YORK = "5 hours"

SCHEMA = pa.schema(
    [(name, pa.string()) for name in GRAIN]
    + [(name, pa.int64()) for name in (*MEASURES, "batch", "token")]
)


def start(
    job: Job[Any],
    observed: DataFrame,
    *,
    rows: int,
    checkpoint: str,
    in_redis: Guard,
    in_files: Guard,
) -> StreamingQuery:
    """Start the query under the grant of this job, for `JobRunner.query`."""
    flights = (
        job.spark.readStream.format("rink")
        .options(**fence(job.role))
        .options(**STREAM)
        .option("maxOffsetsPerTrigger", rows)
        .load()
    )
    to_redis = fenced(add_totals, in_redis, job.role, parts=PARTS)
    to_files = fenced(add_rows, in_files, job.role, parts=PARTS)

    def each_batch(batch: DataFrame, number: int) -> None:
        statistics = statistics_of(batch, observed).persist()
        try:
            to_redis(statistics, number)
            to_files(statistics, number)
        finally:
            statistics.unpersist()

    return (
        flights.writeStream.foreachBatch(each_batch)
        .option("checkpointLocation", checkpoint)
        .start()
    )


def statistics_of(flights: DataFrame, observed: DataFrame) -> DataFrame:
    """Return whole numbers for each day, carrier, airport and weather."""
    known = flights.withColumn("at", F.timestamp_seconds("hour")).join(
        F.broadcast(observed), ["origin", "at"], "left"
    )
    day = F.to_date(F.window("at", "1 day", startTime=NEW_YORK)["start"]).cast("string")
    return known.groupBy(
        day.alias("day"),
        "carrier",
        "origin",
        *(F.coalesce(name, F.lit(weather.UNKNOWN)).alias(name) for name in ("wind", "visibility")),
    ).agg(
        F.count("*").alias("flights"),
        F.sum(F.col("delay").isNull().cast("long")).alias("cancelled"),
        F.sum(F.coalesce("delay", F.lit(0)).cast("long")).alias("delay"),
    )


def observations(spark: SparkSession) -> DataFrame:
    """Return the weather as a table that does not change."""
    read = spark.read.csv(str(file_of("weather.csv")), header=True, nullValue="NA")
    return read.select(
        "origin",
        F.col("time_hour").cast("timestamp").alias("at"),
        _class_of(F.col("wind_speed").cast("double"), weather.WIND).alias("wind"),
        _class_of(F.col("visib").cast("double"), weather.VISIBILITY).alias("visibility"),
    )


def rehearse(spark: SparkSession, observed: DataFrame) -> None:
    """Let Spark compile the code of a batch while the driver stands by."""
    hour = F.lit(1_357_000_000) + F.col("id") * 3600
    flights = spark.range(4).select(
        F.lit("AA").alias("carrier"),
        F.lit("JFK").alias("origin"),
        hour.alias("hour"),
        F.col("id").alias("delay"),
    )
    totals = totals_of(statistics_of(flights, observed))
    part = F.pmod(F.hash("key"), F.lit(PARTS))
    cut = totals.repartitionById(PARTS, part).sortWithinPartitions("key")  # as `fenced` does
    cut.mapInArrow(lambda batches: batches, cut.schema).collect()


def _class_of(measured: Column, classes: dict[str, float]) -> Column:
    # A missing measurement fails every comparison, and becomes null.
    found = F
    for name, below in classes.items():
        found = found.when(measured < below, name)
    return found


# ── written through a guard ──────────────────────────────────────────────────────────────────


def add_totals(statistics: DataFrame, _: int, out: FencedBatch) -> None:
    """Count up the totals; each part of a batch is one step, done once."""
    out.write(totals_of(statistics), count_up, by="key")


def totals_of(statistics: DataFrame) -> DataFrame:
    """Return the totals of carriers and airports by month, and of the weather."""
    month = F.col("day").substr(1, 7)
    keys = F.array(
        F.concat_ws("/", F.lit("carrier"), "carrier", month),
        F.concat_ws("/", F.lit("origin"), "origin", month),
        F.concat_ws("/", F.lit("wind"), "wind"),
        F.concat_ws("/", F.lit("visibility"), "visibility"),
    )
    return (
        statistics.withColumn("key", F.explode(keys))
        .groupBy("key")
        .agg(*(F.sum(name).alias(name) for name in MEASURES))
    )


def count_up(step: Any, rows: Iterator[dict[str, Any]]) -> None:
    """Add one part of a batch, on an executor."""
    for row in rows:
        for name in MEASURES:
            step.hincrby(f"delays/{row['key']}", name, row[name])


def add_rows(statistics: DataFrame, number: int, out: FencedBatch) -> None:
    """Add a batch's results unchanged; the batch is published as a whole."""
    rows = statistics.withColumn("batch", F.lit(number)).withColumn("token", F.lit(out.fence.token))
    out.write(rows, append, by=list(GRAIN), name="files")


def append(step: Any, rows: Iterator[dict[str, Any]]) -> None:
    """Write one part's file, on an executor."""
    step.write_rows(rows, SCHEMA)
