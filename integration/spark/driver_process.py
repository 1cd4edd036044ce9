"""Run one driver, as Kubernetes would run several.

    python driver_process.py REDIS ETCD FOLDER NAME

It has Spark, a JobRunner, and a query from `orders` to `totals`. It writes the last completed batch
of its query to FOLDER/NAME. FOLDER/NAME.ran has when the query was first and last seen to run, in
nanoseconds of the clock that all processes share.
"""

import contextlib
import logging
import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path

# A small JVM that runs for minutes beside others on two cores. `make` makes the archive; an archive
# of another Java is ignored.
ARCHIVE = Path(find_spec("pyspark").origin).parents[4] / "spark.jsa"
JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
if ARCHIVE.exists():
    JAVA += f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:disable"


def on_this_machine(folder, name, builder):
    """Confine a Spark session to this machine, with the tests' apps in reach."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        # A killed JVM leaves files there.
        "spark.driver.extraJavaOptions": (
            f"{JAVA} -Djava.io.tmpdir={folder} -Dderby.system.home={folder}"
        ),
        "spark.local.dir": f"{folder}/local-{name}",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return builder.config(map=settings)


def begin(folder, name):
    """Return a session of Spark; what the driver says goes to its log."""
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.ERROR)
    from pyspark.sql import SparkSession

    spark = on_this_machine(folder, name, SparkSession.builder.master("local[2]")).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def from_orders_to_totals(job, where, folder):
    """Start the query that the shop's drivers run."""
    from pyspark.sql import functions as F  # noqa: N812

    from rink.spark import fence

    orders = (
        job.spark.readStream.format("rink")
        .options(**where, **fence(job.role), stream="orders", maxOffsetsPerTrigger="300")
        .load()
    )
    return (
        orders.select("customer", F.col("order_id").alias("total"))
        .writeStream.format("rink")
        .options(**where, **fence(job.role), stream="totals")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(processingTime="100 milliseconds")
        .start()
    )


def note_batches(jobs, folder, name):
    """Record what the runner's query does, until the runner is closed."""
    note = Path(folder, name)
    note.touch()
    query, begun, progress = jobs.queries[0], None, None
    while not jobs.wait(0.2):
        running = query.running
        if running is not None:
            begun = begun or time.monotonic_ns()
            Path(folder, f"{name}.ran").write_text(f"{begun} {time.monotonic_ns()}")
        with contextlib.suppress(Exception):  # the JVM may be gone: then wait() raises
            progress = running.lastProgress if running is not None else None
        if progress is not None and progress.numInputRows:
            note.write_text(str(progress.batchId))


def main():
    redis, etcd, folder, name = sys.argv[1:]
    spark = begin(folder, name)
    import rink
    from rink.spark import FencedStream, JobRunner

    where = {"app": "spark_shop:app", "redis": redis}
    with (
        rink.Session(etcd, ttl=5) as session,
        rink.Rink(session, "drivers", name=name, initial_delay=600, rebalance_delay=600) as r,
        JobRunner(spark, r) as jobs,
    ):

        @jobs.query("totals", guards=[FencedStream(**where, stream="totals")])
        def totals(job):
            return from_orders_to_totals(job, where, folder)

        note_batches(jobs, folder, name)


if __name__ == "__main__":
    main()
