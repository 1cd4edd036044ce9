"""Test queries that end: each hour, each night, and on demand."""

import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

import rink
from rink.spark import FencedStream, JobRunner, fence

WAIT_S = 180


def until(told, timeout=WAIT_S):
    end = time.monotonic() + timeout
    while not told():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


@pytest.fixture
def drivers(rink_etcd):
    """Yield a function that joins a driver and returns at once."""
    made = []

    def join(name, **settings):
        client = rink_etcd.client(name)
        session = rink.Session(client, ttl=5)
        delays = {"initial_delay": 0.0, "rebalance_delay": 0.0, "leave_timeout": 1.0} | settings
        member = rink.Rink(session, "drivers", name=name, **delays)
        made.append((member, session, client))
        return member.join()

    join.client_of = lambda member: next(client for one, _, client in made if one is member)
    yield join
    for member, session, client in made:
        client.heal()
        member.leave()
        session.close(timeout=5.0)


# ── nights ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.deep
def test_nightly_job_on_three_drivers_runs_once_each_night(drivers, spark, tmp_path):
    """Run a job by cron on all three drivers, each night in another order.

    Each driver joins the group anew.
    """
    runs, answers = Counter(), Counter()

    def driver(night, name):
        def build(job):
            if (tmp_path / f"{night}/_SUCCESS").exists():
                return
            runs[night] += 1
            rows = job.spark.range(10).withColumn("night", F.lit(night))
            rows.coalesce(1).write.mode("overwrite").parquet(str(tmp_path / str(night)))

        member = drivers(f"{name}/{night}", scheme="first", initial_delay=0.1)
        with JobRunner(spark, member) as jobs:
            job = jobs.run(f"report/{night}", build)
            answers["none" if job is None else job.state.value] += 1
        member.leave()

    for night in range(20):
        order = [(night + n) % 3 for n in range(3)]
        started = [threading.Timer(0.05 * n, driver, (night, one)) for n, one in enumerate(order)]
        for thread in started:
            thread.start()
        for thread in started:
            thread.join(WAIT_S)
    assert runs == dict.fromkeys(range(20), 1)
    written = spark.read.parquet(*(str(tmp_path / str(night)) for night in range(20)))
    assert written.groupBy("night").count().where("count = 10").count() == 20
    assert answers.keys() <= {"none", "succeeded"}
    assert answers.total() == 60


# ── hours ────────────────────────────────────────────────────────────────────────────────────────


class Hourly:
    """A query from `orders` to `totals` that ends when it has read all."""

    def __init__(self, shop, folder):
        self.shop, self.checkpoint, self.tokens = shop, str(folder), []

    def __call__(self, job):
        self.tokens.append(job.token)
        options = {**self.shop.options(), **fence(job.role)}
        return (
            job.spark.readStream.format("rink")
            .options(**options)
            .load()
            .select("customer", F.col("order_id").alias("total"))
            .writeStream.format("rink")
            .options(**{**options, "stream": "totals"})
            .option("checkpointLocation", self.checkpoint)
            .trigger(availableNow=True)
            .start()
        )

    @property
    def guard(self):
        return FencedStream(app="spark_shop:app", stream="totals", redis=self.shop.url)

    def send(self, numbers):
        self.shop.send([{"order_id": n, "customer": f"c{n % 7}"} for n in numbers])

    def written(self):
        return sorted(row["total"] for row in self.shop.every("totals"))


@pytest.fixture
def hourly(shop, tmp_path):
    shop.send([])
    shop.send([], stream="totals")
    return Hourly(shop, tmp_path / "checkpoint")


def test_hourly_query_has_all_of_three_hours_in_its_output(drivers, spark, hourly):
    """An hour is two seconds here, or as long as a run of Spark takes."""
    with JobRunner(spark, drivers("one")) as jobs:
        hourly.send(range(100))
        jobs.query("hourly", every=2.0, guards=[hourly.guard])(hourly)
        for hour in range(3):
            until(lambda: len(hourly.written()) == 100 * (hour + 1))  # noqa: B023
            hourly.send(range(100 * (hour + 1), 100 * (hour + 2)))
        until(lambda: len(hourly.written()) == 400)
        assert not jobs.wait(0)
    assert hourly.written() == list(range(400))
    assert len(set(hourly.tokens)) == 1  # one grant, and a start for each hour
    assert len(hourly.tokens) >= 4


@pytest.mark.deep
def test_hourly_query_goes_on_where_its_role_moves_amid_an_hour(drivers, spark, hourly):
    """The next driver does not wait for the hour's end, and repeats nothing."""
    its = next(f"query-{n}" for n in range(99) if rink.rank_of(f"query-{n}", 2) == 0)
    one, two = drivers("one"), drivers("two")
    two.wait_ranked(WAIT_S)
    hourly.send(range(100))
    with JobRunner(spark, one) as first, JobRunner(spark, two) as second:
        first.query(its, every=3600.0, guards=[hourly.guard])(hourly)
        second.query(its, every=3600.0, guards=[hourly.guard])(hourly)
        until(lambda: len(hourly.written()) == 100)
        hourly.send(range(100, 200))
        drivers.client_of(one).cut()
        until(lambda: len(hourly.written()) == 200)
    assert hourly.written() == list(range(200))
    assert len(hourly.tokens) == 2
    assert hourly.tokens[1] > hourly.tokens[0]


# ── once ─────────────────────────────────────────────────────────────────────────────────────────


def test_run_query_returns_when_all_is_written(drivers, spark, hourly):
    """Run a query as cron's driver does: join, run the query, and end.

    Another driver runs it the next night.
    """
    for night in range(2):
        hourly.send(range(100 * night, 100 * (night + 1)))
        member = drivers(f"driver-{night}")
        with JobRunner(spark, member) as jobs:
            query = jobs.run_query("nightly", hourly, guards=[hourly.guard])
        member.leave()
        assert not query.isActive
        assert query.lastProgress.numInputRows == 100
        assert hourly.written() == list(range(100 * (night + 1)))


@pytest.mark.deep
def test_run_query_by_name_has_what_was_sent_before_in_its_output(drivers, spark, hourly):
    with JobRunner(spark, drivers("one")) as jobs:
        hourly.send(range(100))
        jobs.query("hourly", every=3600.0, guards=[hourly.guard])(hourly)
        until(lambda: jobs.queries[0].running is not None)
        hourly.send(range(100, 200))  # perhaps too late for the active run
        jobs.run_query("hourly")
        assert hourly.written() == list(range(200))


def test_run_query_that_fails_raises(drivers, spark, tmp_path):
    def fails(job):
        rows = job.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        broken = rows.select(F.raise_error(F.lit("on purpose")).alias("value"))
        return (
            broken.writeStream.format("noop")
            .option("checkpointLocation", str(Path(tmp_path, "q")))
            .trigger(availableNow=True)
            .start()
        )

    with (
        JobRunner(spark, drivers("one")) as jobs,
        pytest.raises(PySparkException, match="on purpose"),
    ):
        jobs.run_query("nightly", fails)
