"""Test jobs, queries and fenced batches of a real Spark, by roles."""

import threading
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from spark_support import forget_last_commit

import rink
from rink.errors import StaleToken
from rink.guards import Fence, RedisGuard
from rink.spark import JobRunner, JobState, fence, fenced

WAIT_S = 180


@pytest.fixture
def driver(rink_etcd, spark):
    """Yield a runner with all roles, and an etcd client that can be cut off."""
    client = rink_etcd.client("driver")
    session = rink.Session(client, ttl=5)
    with rink.Rink(session, "drivers", initial_delay=0, rebalance_delay=0) as member:
        member.wait_settled(WAIT_S)
        with JobRunner(spark, member) as jobs:
            jobs.client = client
            yield jobs
            client.heal()
    session.close(timeout=5.0)


def slow(folder):
    """Run a long Spark job of Python that records its progress."""

    def note(n):
        for step in range(200):
            Path(folder, f"{n}-{step}").touch()
            time.sleep(0.05)

    return lambda job: job.spark.sparkContext.parallelize(range(2), 2).foreach(note)


def active(spark):
    return list(spark.sparkContext.statusTracker().getActiveJobsIds())


def until(told, timeout=WAIT_S):
    end = time.monotonic() + timeout
    while not told():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def test_on_loss_the_spark_jobs_of_the_role_end_and_no_others(driver, spark, tmp_path):
    ours = driver.start("ours", slow(tmp_path))
    until(lambda: any(tmp_path.iterdir()))
    may_end, ended = tmp_path / "may end", []

    def wait(_):
        while not may_end.exists():
            time.sleep(0.05)

    def run():
        spark.sparkContext.parallelize([1], 1).foreach(wait)
        ended.append(True)

    other = threading.Thread(target=run)
    other.start()
    until(lambda: len(active(spark)) == 2)
    driver.client.cut()
    until(ours.lost.is_set)
    lost_at = time.monotonic()
    until(lambda: len(active(spark)) == 1)
    assert time.monotonic() - lost_at < 5  # usually 250 ms, which the bench measures
    assert ours.wait(WAIT_S)
    assert ours.state is JobState.LOST
    may_end.touch()
    other.join(WAIT_S)
    assert ended


def test_job_whose_role_was_lost_starts_no_spark_job_that_goes_on(driver, spark):
    counted = []

    def stubborn(job):
        while not job.lost.is_set() or len(counted) < 3:
            try:
                job.spark.sparkContext.parallelize(range(2), 2).foreach(lambda _: time.sleep(10))
            except Exception:
                counted.append(time.monotonic())

    job = driver.start("stubborn", stubborn)
    until(lambda: active(spark))
    job.cancel()
    driver.client.cut()
    assert job.wait(WAIT_S)
    assert counted[2] - counted[0] < 9


# ── fenced batches ───────────────────────────────────────────────────────────────────────────────


def add_up(step, rows):
    for row in rows:
        step.hincrby("sums", row["customer"], row["amount"])


def write(df, batch_id, out):
    out.write(df.groupBy("customer").agg(F.sum("amount").alias("amount")), add_up, by="customer")


RECORDS = [{"order_id": n, "customer": f"c{n % 7}", "amount": n} for n in range(100)]  # two batches
SUMS = {f"c{k}": sum(n for n in range(100) if n % 7 == k) for k in range(7)}


def sums(shop):
    return {name.decode(): int(value) for name, value in shop.redis.hgetall("sums").items()}


def query_of(shop, spark, folder, guard, role, body=write):
    return (
        spark.readStream.format("rink")
        .options(**shop.options(maxOffsetsPerTrigger=60, **fence(role)))
        .load()
        .writeStream.foreachBatch(fenced(body, guard, role, parts=4))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )


def test_query_by_role_writes_each_batch_once_also_when_one_is_replayed(
    driver, shop, spark, tmp_path
):
    shop.send(RECORDS)
    guard, done = RedisGuard(shop.url), threading.Semaphore(0)

    @driver.query("sums", guards=[guard])
    def sums_of_customers(job):
        query = query_of(shop, job.spark, tmp_path / "q", guard, job.role)
        threading.Thread(target=lambda: (query.awaitTermination(), done.release())).start()
        return query

    assert done.acquire(timeout=WAIT_S)
    assert sums(shop) == SUMS
    forget_last_commit(tmp_path / "q")
    driver.client.cut()
    until(driver.queries[0]._job.lost.is_set)
    driver.client.heal()
    assert done.acquire(timeout=WAIT_S)
    assert sums(shop) == SUMS


class Grant:
    """A role, as far as fences go."""

    def __init__(self, token):
        self.name, self.token = "sums", token


def test_stale_driver_is_refused_and_the_next_one_completes_its_batch(shop, spark, tmp_path):
    shop.send(RECORDS)
    guard = RedisGuard(shop.url)

    def overtaken(df, batch_id, out):
        if batch_id == 1:
            guard.raise_fence(Fence("sums", 2))
        write(df, batch_id, out)

    with pytest.raises(PySparkException, match="StaleToken"):
        query_of(shop, spark, tmp_path, guard, Grant(1), overtaken).awaitTermination()
    with pytest.raises(StaleToken):
        fenced(write, guard, Grant(1))
    assert sum(sums(shop).values()) < sum(SUMS.values())
    query_of(shop, spark, tmp_path, guard, Grant(2)).awaitTermination()
    assert sums(shop) == SUMS


@pytest.mark.deep
def test_body_that_hides_an_error_does_not_lose_its_batch(shop, spark, tmp_path):
    shop.send(RECORDS)
    guard, fails = RedisGuard(shop.url), [True]

    def hides(df, batch_id, out):
        bad = F.lit("x") if fails else F.col("amount")
        try:
            write(df.withColumn("amount", F.raise_error(bad) if fails else bad), batch_id, out)
        except Exception:
            fails.clear()

    with pytest.raises(PySparkException, match="was not written: do not catch what `write` raises"):
        query_of(shop, spark, tmp_path, guard, Grant(1), hides).awaitTermination()
    query_of(shop, spark, tmp_path, guard, Grant(1), hides).awaitTermination()
    assert sums(shop) == SUMS


@pytest.mark.deep
def test_two_fenced_functions_of_a_batch_write_outputs_of_different_names(shop, spark, tmp_path):
    shop.send(RECORDS)

    def in_two(second, folder):
        def both(df, batch_id, out):
            write(df, batch_id, out)
            fenced(more, RedisGuard(shop.url), Grant(1), parts=4)(df, batch_id)

        def more(df, batch_id, out):
            counts = df.groupBy("customer").agg(F.count("*").alias("amount"))
            out.write(counts, count, by="customer", name=second)

        return query_of(shop, spark, folder, RedisGuard(shop.url), Grant(1), both)

    def count(step, rows):
        for row in rows:
            step.hincrby("counts", row["customer"], row["amount"])

    with pytest.raises(PySparkException, match="was written already, here or by another fenced"):
        in_two("", tmp_path / "one").awaitTermination()
    shop.redis.delete("sums")
    in_two("counts", tmp_path / "two").awaitTermination()
    assert sums(shop) == SUMS
    counts = {name.decode(): int(n) for name, n in shop.redis.hgetall("counts").items()}
    assert counts == {f"c{k}": sum(n % 7 == k for n in range(100)) for k in range(7)}


@pytest.mark.deep
def test_empty_batch_marks_all_its_parts(shop, spark, tmp_path):
    shop.send([])
    guard = RedisGuard(shop.url)
    query_of(shop, spark, tmp_path, guard, Grant(1)).awaitTermination()
    assert marks(shop) == {b"0"}
    shop.send(RECORDS)
    query_of(shop, spark, tmp_path, guard, Grant(1)).awaitTermination()
    assert marks(shop) == {b"2"}
    assert sums(shop) == SUMS


def marks(shop):
    """Return the last batch of the parts; all four must have the same."""
    found = [shop.redis.hgetall(f"rink:guard:{{sums/{number}}}") for number in range(4)]
    [in_each] = {sum(name.startswith(b"mark:") for name in one) for one in found}
    assert in_each == 1
    return {value for one in found for name, value in one.items() if name.startswith(b"mark:")}


def test_function_that_takes_no_third_is_refused():
    with pytest.raises(rink.ConfigError, match=r"\(df, batch_id, out\)"):
        fenced(lambda _df, _batch_id: None, RedisGuard("redis://127.0.0.1:1"), Grant(1))
