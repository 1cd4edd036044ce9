"""Measure streams as a source of Spark.

The same reader without Spark stands beside it. It also measures how fast jobs end when a role is
lost. Spark runs in a process of its own (this file), so that its JVM ends with this part.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TITLE = (
    "rink.spark: 100-byte records in 8 partitions as rows, on all cores; jobs that lose their role"
)
PARTITIONS = 8
LIMIT_IS = "the same reader in one process, without Spark, in the same run"
NO_LIMIT = (
    "From the loss of a role to the end of its jobs there is no limit in the same run: nothing "
    "here ends a job without Rink. So these two figures have no target."
)
RECORD = b'{"n":%08d,"text":"' + b"x" * 76 + b'"}'


def run(arena: Any) -> Any:
    import arena as arenas
    from figures import Figure, Outcome, Spread, at_least, percentile

    with arenas.redis() as redis:
        about = arenas.about_redis(redis)
        given = {
            "redis": redis.url,
            "rows": arena.pick(1_000_000, 100_000),
            "rounds": arena.pick(5, 2),
            "losses": arena.pick(50, 5),
            "query_losses": arena.pick(20, 3),
        }
        arena.progress("Spark", 0, 1)
        done = subprocess.run(
            [sys.executable, __file__, json.dumps(given)],
            stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    rate = {kind: given["rows"] / min(times) for kind, times in found["seconds"].items()}
    limit, ends = rate["outside"], found["ends"]
    figures = [
        Figure(
            key="spark_source.query", what="a streaming query, one batch, bytes",
            value=rate["query"], unit="rows/s", limit=limit, limit_is=LIMIT_IS,
            target=at_least(0.75 * limit, "≥ 0.75 x limit"),
            more={"seconds": found["seconds"]},
        ),
        Figure(
            key="spark_source.batch", what="a batch read, bytes", value=rate["batch"],
            unit="rows/s", limit=limit, limit_is=LIMIT_IS,
        ),
        Figure(
            key="spark_source.columns",
            what="a streaming query, columns of the record and metadata",
            value=rate["columns"], unit="rows/s", limit=limit, limit_is=LIMIT_IS,
        ),
        Figure(
            key="spark_source.loss",
            what="from the loss of a role to the end of its Spark jobs, p95",
            value=percentile(ends, 0.95) * 1000, unit="ms",
            more={"spread": Spread.of(ends), "at": found["lost_by"]},
        ),
        Figure(
            key="spark_source.query_loss",
            what="the same of a streaming query that is amid a batch, p95",
            value=percentile(found["query_ends"], 0.95) * 1000, unit="ms",
            more={"spread": Spread.of(found["query_ends"])},
        ),
    ]  # fmt: skip
    notes = [
        (
            f"Best of {given['rounds']} rounds, all ways in turn in each. {found['spark']}, "
            f"{os.cpu_count()} cores."
        ),
        (
            f"Records of {len(RECORD % 0)} bytes of JSON. The query's one batch of "
            f"{given['rows']:,} rows goes into Spark's sink `noop`."
        ),
        (
            f"A job's role was lost {given['losses']} times, a query's {given['query_losses']}: "
            "its session was cut off from an etcd in memory, and reached its deadline."
        ),
        NO_LIMIT,
        about,
    ]
    return Outcome(part="spark_source", title=TITLE, figures=figures, notes=notes)


# ── in the process of its own ────────────────────────────────────────────────────────────────────


def measure(given: dict[str, Any]) -> dict[str, Any]:
    from spark_jvm import session  # beside this file, which runs as a script

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "bench_shop.py").write_text(
            "from rink.streams import App, Record\n"
            "class Row(Record):\n    n: int\n    text: str\n"
            f"app = App('bench', redis={given['redis']!r})\n"
            "rows = app.stream('rows', record=Row, partition_by='n', "
            f"partition_count={PARTITIONS})\n"
        )
        sys.path.insert(0, folder)
        os.environ["PYTHONPATH"] = folder
        fill(given)
        with session({"spark.local.dir": folder, "spark.log.level": "OFF"}) as (spark, _):
            seconds: dict[str, list[float]] = {}
            for number in range(-1, given["rounds"]):  # the first, cold one does not count
                for kind, way in ways(spark, given, folder, number).items():
                    began = time.perf_counter()
                    took = way()
                    took = took if took is not None else time.perf_counter() - began
                    if number >= 0:
                        seconds.setdefault(kind, []).append(took)
            ends = losses(spark, given["losses"])
            query_ends = losses_of_a_query(spark, given["query_losses"], folder)
            return {
                "seconds": seconds,
                "ends": ends,
                "query_ends": query_ends,
                "lost_by": "cut",
                "spark": f"PySpark {spark.version}",
            }


def fill(given: dict[str, Any]) -> None:
    import bench_shop
    import redis

    client = redis.Redis.from_url(given["redis"])
    client.hset(bench_shop.rows.names.about, mapping={"format": 1, "partitions": PARTITIONS})
    for number in range(PARTITIONS):
        names = bench_shop.rows.names.partition(number)
        client.hset(
            names.offsets, mapping={"format": 1, "holds": "0-0"}
        )  # or what one query has read is trimmed
        for first in range(0, given["rows"] // PARTITIONS, 5000):
            pipeline = client.pipeline(transaction=False)
            for n in range(first, min(first + 5000, given["rows"] // PARTITIONS)):
                pipeline.xadd(names.stream, {"d": RECORD.replace(b"%08d", b"1%07d" % n)})
            pipeline.execute()


def ways(spark: Any, given: dict[str, Any], folder: str, number: int) -> dict[str, Any]:
    where = {"app": "bench_shop:app", "stream": "rows", "redis": given["redis"]}
    raw = {**where, "record": "raw", "metadata": "false"}

    def batch() -> None:
        spark.read.format("rink").options(**raw).load().write.format("noop").mode(
            "overwrite"
        ).save()

    def query(kind: str, options: dict[str, str]) -> float:
        name = f"{kind}-{number}"
        running = (
            spark.readStream.format("rink").options(**options, group=name).load()
            .writeStream.format("noop").option("checkpointLocation", f"{folder}/{name}")
            .trigger(availableNow=True).start()
        )  # fmt: skip
        running.awaitTermination()
        told = [one for one in running.recentProgress if one["numInputRows"]]
        assert [one["numInputRows"] for one in told] == [given["rows"]]
        return float(told[0]["durationMs"]["triggerExecution"]) / 1000

    def outside() -> None:
        from rink.spark import RinkDataSource

        source = RinkDataSource(raw)
        reader = source.reader(source.schema())
        rows = sum(page.num_rows for part in reader.partitions() for page in reader.read(part))
        assert rows == given["rows"]

    return {
        "batch": batch,
        "query": lambda: query("bytes", raw),
        "columns": lambda: query("columns", where),
        "outside": outside,
    }


def losses(spark: Any, count: int) -> list[float]:
    """Return the seconds from each loss of a role to the end of its jobs.

    The jobs are Python's, on all cores.
    """

    def busy(_: int) -> None:
        time.sleep(30)

    ends = []
    with runner(spark) as (client, r, jobs):
        for number in range(count):
            r.wait_settled(30)
            job = jobs.start(
                f"job-{number}",
                lambda job: job.spark.sparkContext.parallelize(range(2), 2).foreach(busy),
            )
            assert job is not None
            ends.append(seconds_to_the_end(spark, client, job.role))
            job.wait(60)
    return ends


def losses_of_a_query(spark: Any, count: int, folder: str) -> list[float]:
    """Return the same figures of a query amid a batch.

    The batch is with its Python workers.
    """

    def busy(batches: Any) -> Any:
        for batch in batches:
            time.sleep(30)
            yield batch

    grants: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with runner(spark) as (client, _, jobs):

        @jobs.query("busy")
        def start(job: Any) -> Any:
            grants.put(job.role)
            rows = job.spark.readStream.format("rate").option("rowsPerSecond", 100).load()
            held = rows.mapInArrow(busy, rows.schema).writeStream.format("noop")
            return held.option("checkpointLocation", f"{folder}/busy").start()

        return [seconds_to_the_end(spark, client, grants.get(timeout=60)) for _ in range(count)]


@contextlib.contextmanager
def runner(spark: Any) -> Iterator[Any]:
    """Run a driver that is alone, and a way to cut it off from its etcd."""
    import rink
    from rink.spark import JobRunner
    from rink.testing.memory.cluster import MemoryCluster

    with MemoryCluster() as cluster:
        client = cluster.client("driver")
        with rink.Session(client, ttl=2) as lasting, rink.Rink(
            lasting, "drivers", initial_delay=0, rebalance_delay=0
        ) as r, JobRunner(spark, r) as jobs:  # fmt: skip
            yield client, r, jobs


def seconds_to_the_end(spark: Any, client: Any, role: Any) -> float:
    """Cut a driver off while Spark works for it.

    Return the seconds from the loss of the role to the end of all Spark jobs.
    """
    tracker, lost_at = spark.sparkContext.statusTracker(), []
    role.lost.then(lambda: lost_at.append(time.perf_counter()))
    while not tracker.getActiveJobsIds():
        time.sleep(0.01)
    time.sleep(0.5)  # its Python workers are at work
    client.cut()
    role.lost.wait(30)
    while tracker.getActiveJobsIds():
        time.sleep(0.002)
    ended = time.perf_counter()
    client.heal()
    return float(ended - lost_at[0])


if __name__ == "__main__":
    threading.current_thread().name = "bench"
    print(json.dumps(measure(json.loads(sys.argv[1]))))
