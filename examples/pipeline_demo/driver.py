"""Run a driver: a Spark session, a member, and the query.

The query runs while the driver holds the role `delays`.
"""

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pyspark
from common.here import end_with_the_demo
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import rink
from pipeline_demo import query
from pipeline_demo.here import FOLDER, OF_DRIVER, DriverHere
from pipeline_demo.noting import NotingGuard
from rink.guards import ParquetGuard, RedisGuard
from rink.spark import Job, JobRunner

# The first driver has a rank at once. A later one stands by for this long, unless it replaces a
# driver that is gone: a group with a single query need not grow.
STANDS_BY_S = 600.0
# These suit a JVM that lives a minute or two, beside others on two cores. With the archive of
# classes that `make` writes, it starts in half of the time. An archive of another Java is ignored.
ARCHIVE = Path(pyspark.__file__).parents[4] / "spark.jsa"
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
if ARCHIVE.exists():
    JVM += f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable"


def main() -> None:
    here = DriverHere.read()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    asked_to_leave = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: asked_to_leave.set())
    end_with_the_demo()
    spark = make_session(here)
    observed = query.observations(spark).cache()
    query.rehearse(spark, observed)
    with (
        rink.Session(here.etcd, ttl=float(here.ttl)) as session,
        rink.Rink(
            session,
            "pipeline",
            name=here.name,
            rebalance_delay=STANDS_BY_S,
            initial_delay=STANDS_BY_S,
        ) as group,
        JobRunner(spark, group) as jobs,
    ):
        here.note("joined")
        here.note_warnings()
        run_query(here, jobs, observed)
        asked_to_leave.wait()
        here.note("leaving")
    spark.stop()


def run_query(here: DriverHere, jobs: JobRunner, observed: Any) -> None:
    in_redis = NotingGuard(RedisGuard(here.redis), "Redis", here)
    in_files = NotingGuard(ParquetGuard(here.parquet), "Parquet", here)

    @jobs.query("delays", guards=[in_redis, in_files])
    def delays(job: Job[Any]) -> StreamingQuery:
        here.note("granted", token=job.token)
        job.role.lost.then(lambda: here.note("lost", token=job.token))
        return query.start(
            job,
            observed,
            rows=int(here.rows),
            checkpoint=str(here.checkpoint),
            in_redis=in_redis,
            in_files=in_files,
        )


def make_session(here: DriverHere) -> SparkSession:
    local = f"{here.folder}/{here.name}"
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # A killed JVM leaves files there, which are removed with the demo's folder.
        "spark.driver.extraJavaOptions": f"{JVM} -Djava.io.tmpdir={here.folder}",
        "spark.driver.memory": "700m",
        "spark.local.dir": local,
        "spark.sql.warehouse.dir": f"{local}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if not here.master.startswith("local"):
        settings |= for_executors(here)
    builder = SparkSession.builder.master(here.master).appName(here.name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def for_executors(here: DriverHere) -> dict[str, str]:
    """Return the settings for a cluster; each driver gets one core."""
    return {
        "spark.cores.max": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": JVM,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],  # the demo's own modules
        # By these the demo finds the executors, when it freezes their driver and when it ends.
        f"spark.executorEnv.{FOLDER}": here.folder,
        f"spark.executorEnv.{OF_DRIVER}": here.name,
    }


if __name__ == "__main__":
    main()
