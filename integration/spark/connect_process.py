"""Run a driver on Spark Connect, and report what works there.

    python connect_process.py REDIS FOLDER

It has its own server, and prints its report as one line of JSON.
"""

import json
import sys
import time
from pathlib import Path

from driver_process import from_orders_to_totals, on_this_machine

WAIT_S = 120


def main():
    redis_url, folder = sys.argv[1:]
    from pyspark.sql import SparkSession

    import rink
    from rink.spark import JobRunner
    from rink.testing.memory.cluster import MemoryCluster

    spark = on_this_machine(
        folder, "connect", SparkSession.builder.remote("local[2]")
    ).getOrCreate()
    where = {"app": "spark_shop:app", "redis": redis_url}
    found = {"session": type(spark).__module__, "ranks": ranks(spark), "read": read(spark, where)}
    with MemoryCluster() as cluster:
        client = cluster.client("driver")
        with (
            rink.Session(client, ttl=2) as session,
            rink.Rink(session, "drivers", initial_delay=0) as r,
            JobRunner(spark, r) as jobs,
        ):
            r.wait_settled(WAIT_S)
            found["ran"] = jobs.run("a job", lambda job: job.spark.range(10).count()).result()
            found["fenced"] = fenced_batch(jobs, redis_url, folder)
            found |= lost(jobs, client, folder)
            r.wait_settled(WAIT_S)
            found |= query(jobs, where, folder, client)
    print(json.dumps(found), flush=True)
    spark.stop()


def ranks(spark):
    from rink.spark.roles import assign

    df = spark.range(1000).selectExpr("concat('orders/', id) AS role")
    return {row.role: row.rank for row in assign(df, "role", 8).collect()}


def read(spark, where):
    orders = spark.read.format("rink").options(**where, stream="orders").load()
    return sorted(row.order_id for row in orders.collect())


def fenced_batch(jobs, redis_url, folder):
    """Return the error of a fenced function."""
    from rink.guards import RedisGuard
    from rink.spark import fenced

    def run(job):
        write = fenced(lambda df, number, out: None, RedisGuard(redis_url), job.role)
        query = (
            job.spark.readStream.format("rate").load().writeStream.foreachBatch(write)
            .option("checkpointLocation", f"{folder}/fenced").start()
        )  # fmt: skip
        query.awaitTermination(WAIT_S)

    job = jobs.run("fenced", run)
    return str(job.error)


def lost(jobs, client, folder):
    """Return how long a Spark job continues after a loss, and its state then."""
    from pyspark.sql import functions as F  # noqa: N812

    begun = Path(folder, "begun")

    def slow(number):
        begun.touch()
        time.sleep(2 * WAIT_S)
        return number

    udf = F.udf(slow, "long")
    job = jobs.start("slow", lambda job: job.spark.range(2).select(udf("id")).collect())
    until(begun.exists, "a task that runs")
    client.cut()
    assert job.role.lost.wait(WAIT_S)
    at = time.monotonic()
    assert job.wait(WAIT_S)
    took = time.monotonic() - at
    client.heal()
    return {"ended_s": took, "state": job.state.value}


def query(jobs, where, folder, client):
    """Return what a query writes, and whether it stops when its role is lost."""
    from rink.spark import FencedStream

    @jobs.query("totals", guards=[FencedStream(**where, stream="totals")])
    def totals(job):
        return from_orders_to_totals(job, where, folder)

    def written():
        df = jobs.spark.read.format("rink").options(**where, stream="totals").load()
        return sorted(row.total for row in df.collect())

    until(lambda: len(written()) >= 100, "what the query writes")
    client.cut()
    until(lambda: jobs.queries[0].running is None, "the end of the query")
    return {"written": written()}


def until(told, what):
    end = time.monotonic() + WAIT_S
    while not told():
        assert time.monotonic() < end, f"waited {WAIT_S} s for {what}"
        time.sleep(0.1)


if __name__ == "__main__":
    main()
