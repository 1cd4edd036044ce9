"""A driver: a Spark session, a member of the group, and the query while it holds the role `delays`."""

import logging
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from streams_demo.here import end_with_the_demo

import rink
from pipeline_demo import query
from pipeline_demo.here import FOLDER, OF_DRIVER, Here
from pipeline_demo.noting import NotingGuard
from rink.guards import ParquetGuard, RedisGuard
from rink.spark import Job, JobRunner

# The first driver has a rank at once; those after it stand by for so long, unless they are to replace one that is gone:
# for a single query a group need not grow.
STANDS_BY_S = 600.0
# For a JVM that lives a minute or two, with others, on two cores. `make` has noted down which classes Spark loads, so that
# it starts in half of the time; an archive of another Java is passed over.
ARCHIVE = Path(pyspark.__file__).parents[4] / "spark.jsa"
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
if ARCHIVE.exists():
    JVM += f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable"


def main() -> None:
    here = Here.read()
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
            name=here.driver,
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


def run_query(here: Here, jobs: JobRunner, observed: Any) -> None:
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


def make_session(here: Here) -> SparkSession:
    local = f"{here.folder}/{here.driver}"
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # A JVM that is killed leaves files there: they go with the demo's folder.
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
    builder = SparkSession.builder.master(here.master).appName(here.driver)
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def for_executors(here: Here) -> dict[str, str]:
    """What a cluster is told: one core for each driver, so that both have one; and what executors must know."""
    return {
        "spark.cores.max": "1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": JVM,
        "spark.executorEnv.PYTHONPATH": os.environ["PYTHONPATH"],  # the demo's own modules
        # By these the demo finds them when it freezes a driver with all that is its own, and when it ends.
        f"spark.executorEnv.{FOLDER}": here.folder,
        f"spark.executorEnv.{OF_DRIVER}": here.driver,
    }


if __name__ == "__main__":
    main()
