"""Test what only a cluster shows, with Rink from the wheel.

The demo's pipeline runs on a Spark standalone cluster, too. Run as a script, this file is the
driver of `on_the_cluster`.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cluster import REPOSITORY, Cluster, python_with_the_wheel

HERE = Path(__file__).parent
WAIT_S = 300
pytestmark = [pytest.mark.deep, pytest.mark.timeout(2 * WAIT_S)]
RECORDS = [{"order_id": n, "customer": f"c{n % 17}", "amount": n % 5} for n in range(300)]
# One month in fewer batches: the starts of Spark take the time.
SMALL = ("--months", "1", "--batches", "6", "--seconds", "5")


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """Return an interpreter with the installed wheel."""
    return python_with_the_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def spark_cluster(tmp_path_factory):
    """Yield two workers with one core each."""
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.start(2)
        yield cluster


def environment(**more):
    """Return our environment, without the variables that name modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | more


def test_pipeline_goes_through_a_kill_and_a_freeze_on_a_cluster(python, spark_cluster):
    before = len(spark_cluster.applications())
    done = subprocess.run(
        [python, "examples/pipeline.py", "--json", "--master", spark_cluster.url, *SMALL],
        cwd=REPOSITORY,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=WAIT_S + 200,
        check=False,
    )
    assert done.stdout, done.stderr[-4000:]
    report = json.loads(done.stdout)
    found = {name: fault["first"] for name, fault in report["faults"].items() if fault["count"]}
    assert found == {}
    assert report["ok"]
    assert done.returncode == 0
    assert set(report["totals"]["flights"].values()) == {27_004}  # January
    assert [one["cause"] for one in report["takeovers"]] == ["start", "killed", "frozen"]
    assert any("is stale" in one for one in report["refused"])
    # Three drivers had an executor each. The last one's is on the core that the killed one's had.
    assert len(spark_cluster.applications()) == before + 3


@pytest.fixture(scope="module")
def told(python, spark_cluster, tmp_path_factory):
    """Return a driver's output after it lost a worker, and Redis' rows."""
    import redis
    import spark_shop
    from spark_shop_on import ShopOn

    from rink.testing.redis_server.local import local_redis

    folder = tmp_path_factory.mktemp("driver")
    (folder / "hold").touch()
    with local_redis() as server, redis.Redis.from_url(server.url) as client:
        shop = ShopOn(client, server.url, spark_shop)
        shop.send(RECORDS)
        shop.send([], stream="totals")
        # Executors have another current directory: they do not find what the driver finds through
        # `.`.
        known = environment(PYSPARK_PYTHON=python, PYTHONPATH=".")
        command = [python, str(Path(__file__)), spark_cluster.url, server.url, str(folder)]
        log = folder / "log"
        with (
            log.open("w") as errors,
            subprocess.Popen(command, cwd=HERE, env=known, stdout=-1, stderr=errors) as driver,
        ):
            try:
                pid = executing(driver, folder, log)
                spark_cluster.kill_the_worker_of(pid)
                (folder / "hold").unlink()
                out, _ = driver.communicate(timeout=WAIT_S)
            finally:
                driver.kill()
        spark_cluster.add_workers(1)
        assert driver.returncode == 0, log.read_text()[-4000:]
        return json.loads(out) | {"totals": shop.every("totals")}


def executing(driver, folder, log):
    """Wait until an executor has a part of a batch; return its Python process."""
    end = time.monotonic() + WAIT_S
    while not (found := list(folder.glob("at-*"))):
        if driver.poll() is not None or time.monotonic() > end:
            pytest.fail(f"no executor has come to a batch: {log.read_text()[-4000:]}")
        time.sleep(0.05)
    return int(found[0].name.removeprefix("at-"))


def test_executors_run_rink_from_the_wheel_each_in_a_folder_of_its_own(told, python):
    modules, folders, interpreters = (set(found) for found in zip(*told["where"], strict=True))
    site = next((Path(python).parents[1] / "lib").glob("python*/site-packages"))
    assert modules == {f"{site}/rink/__init__.py {site}/pyspark_rink/__init__.py"}
    assert len(folders) == 2
    assert interpreters == {python}


def test_app_that_executors_cannot_import_is_an_error_that_says_so(told):
    assert "app='spark_shop:app' cannot be loaded" in told["error"]
    assert "executors must be able to import it" in told["error"]


def test_module_that_is_given_along_reaches_source_and_sink(told):
    assert told["read"] == len(RECORDS)


def test_query_whose_worker_is_killed_in_a_batch_writes_each_row_once(told):
    assert told["batches"] >= 3
    assert sorted(row["total"] for row in told["totals"]) == list(range(len(RECORDS)))
    assert all(row["customer"] == f"c{row['total'] % 17}" for row in told["totals"])


# ── the driver ───────────────────────────────────────────────────────────────────────────────


def on_the_cluster(master, redis, folder):
    """Print, as JSON, the findings of the driver and its executors."""
    spark = session(master, folder)
    options = {"app": "spark_shop:app", "stream": "orders", "redis": redis}
    told = {"where": spark.sparkContext.parallelize(range(8), 8).map(where).collect()}
    orders = spark.read.format("rink").options(**options).load()
    try:
        orders.collect()
    except Exception as error:
        told["error"] = str(error)
    spark.sparkContext.addPyFile("spark_shop.py")
    told["read"] = orders.count()
    query = start(spark, options, Path(folder))
    query.awaitTermination()
    told["batches"] = query.lastProgress.batchId + 1
    spark.stop()
    print(json.dumps(told))


def session(master, folder):
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder}",
        "spark.executor.memory": "512m",
        "spark.task.maxFailures": "2",  # do not look for the missing app more often
        # Jobs begin when both executors are there.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{WAIT_S}s",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    builder = SparkSession.builder.master(master).appName("rink-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def where(_):
    """Return an executor's findings."""
    import pyspark_rink
    import rink

    return f"{rink.__file__} {pyspark_rink.__file__}", str(Path.cwd()), sys.executable


def start(spark, options, folder):
    """Copy orders to totals; a batch waits while there is a file `hold`."""
    from pyspark.sql import functions as F  # noqa: N812

    def held(batches):
        for batch in batches:
            yield batch
            (folder / f"at-{os.getpid()}").touch()
            end = time.monotonic() + WAIT_S
            while (folder / "hold").exists() and time.monotonic() < end:
                time.sleep(0.02)

    orders = (
        spark.readStream.format("rink")
        .options(**options, group="totals", maxOffsetsPerTrigger="120")
        .load()
        .select("customer", F.col("order_id").alias("total"))
    )
    return (
        orders.mapInArrow(held, orders.schema)
        .writeStream.format("rink")
        .options(**options | {"stream": "totals"}, name="totals")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


if __name__ == "__main__":
    on_the_cluster(*sys.argv[1:])
