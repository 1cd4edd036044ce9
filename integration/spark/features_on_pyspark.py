"""Try each part of `rink.spark` on one release of PySpark, as a user does.

`.ci/pysparks` runs this file in an environment of each release. Each test is a row of the table in
docs/pyspark.md: its docstring is the row's title, and what it gives to `found` stands in the
release's column ("yes" where it gives nothing).
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pyspark
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from spark_shop import Full
from spark_support import forget_last_commit
from test_sink_rich_on_spark import RECORDS as RECORDS_OF_ALL_TYPES
from test_sink_rich_on_spark import columns_of

import rink
from rink.errors import StaleToken
from rink.guards import Fence, RedisGuard
from rink.spark import JobRunner, JobState, fence, fenced
from rink.spark.schema import struct_of

WAIT_S = 180
RELEASE = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
HAS_LIMITS = RELEASE >= (4, 2)
RECORDS = [{"order_id": n, "customer": f"c{n % 7}", "amount": n % 5} for n in range(300)]
EVERY = [row["order_id"] for row in RECORDS]


@pytest.fixture(autouse=True)
def found(request, record_property):
    """Record a finding instead of "yes"."""
    record_property("row", request.function.__doc__.strip())
    record_property("versions", os.environ.get("RINK_PYSPARK_VERSIONS", pyspark.__version__))
    return lambda cell: record_property("cell", cell)


def until(told, timeout=WAIT_S):
    end = time.monotonic() + timeout
    while not told():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


def source(shop, spark, **options):
    return spark.readStream.format("rink").options(**shop.options(**options)).load()


class Noted:
    """The batches of a query: the order ids of each."""

    def __init__(self, fails=False):
        self.batches, self.fails = {}, fails

    def __call__(self, df, number):
        rows = sorted(row.order_id for row in df.collect())
        if self.fails:
            raise ValueError("fails on purpose")
        if rows:
            self.batches[number] = rows

    @property
    def rows(self):
        return sorted(row for rows in self.batches.values() for row in rows)


def start(df, each, folder, **trigger):
    query = df.writeStream.foreachBatch(each).option("checkpointLocation", str(folder))
    return query.trigger(**trigger or {"availableNow": True}).start()


def run(df, each, folder):
    start(df, each, folder).awaitTermination()
    return each


def totals(df):
    return df.select("customer", F.col("order_id").alias("total"), F.col("amount").alias("count"))


def offset_of(shop, group, number=0):
    """Return the entry up to which a group has read, and the last entry."""
    names = shop.module.orders.names.partition(number)
    info = shop.redis.xinfo_stream(names.stream)
    return shop.redis.hget(names.offsets, f"spark/{group}"), info["last-generated-id"]


# ── source and sink ──────────────────────────────────────────────────────────────────────────────


def test_batch_source_has_all_events_of_its_edges(shop, spark):
    """`spark.read`"""
    shop.send(RECORDS)
    df = spark.read.format("rink").options(**shop.options(metadata=False)).load()
    assert df.schema.simpleString() == (
        "struct<order_id:bigint,customer:string,amount:bigint,note:string>"
    )
    assert sorted(row.order_id for row in df.collect()) == EVERY
    names = [shop.module.orders.names.partition(n).stream for n in range(4)]
    ids = [[at.decode() for at, _ in shop.redis.xrange(name)] for name in names]
    edges = {
        "startingOffsets": json.dumps({n: some[4] for n, some in enumerate(ids)}),
        "endingOffsets": json.dumps({n: some[9] for n, some in enumerate(ids)}),
    }
    part = spark.read.format("rink").options(**shop.options(**edges)).load()
    assert sorted(row._id for row in part.collect()) == sorted(
        at for some in ids for at in some[5:10]
    )


def test_table_is_read_and_appended_to(shop, spark):
    """`CREATE TABLE … USING rink`: `SELECT`, `INSERT INTO … WITH (…)`"""
    shop.send([], stream="totals")
    where = shop.options("totals", metadata="false")
    options = ", ".join(f"{name} '{value}'" for name, value in where.items())
    spark.sql(f"CREATE TABLE of_features USING rink OPTIONS ({options})")
    try:
        to = ", ".join(f"{name} = '{value}'" for name, value in shop.options("totals").items())
        spark.sql(f"INSERT INTO of_features WITH ({to}) VALUES ('ann', 7, 1), ('bob', 8, 1)")
        assert spark.sql("SELECT sum(total) AS n FROM of_features").first().n == 15
        late = "SELECT * FROM of_features WITH (startingTimestamp = '2100-01-01 00:00 UTC')"
        assert spark.sql(late).count() == 0
    finally:
        spark.sql("DROP TABLE of_features")


def test_batch_sink_writes_once_for_each_write_id(shop, spark):
    """`df.write`, once for each `writeId`"""
    shop.send([], stream="totals")
    df = totals(spark.createDataFrame(RECORDS))
    for token in (5, 5, 4):
        options = shop.options("totals", writeId="daily", fencingToken=token)
        writer = df.write.format("rink").options(**options).mode("append")
        if token == 5:
            writer.save()
            continue
        with pytest.raises(PySparkException, match="belongs to a later driver"):
            writer.save()
    assert sorted(row["total"] for row in shop.every("totals")) == EVERY


RICH = RECORDS_OF_ALL_TYPES[0]


def test_records_of_all_types_come_back_as_they_were(shop, spark, tmp_path):
    """columns of all types, written and read, also by queries"""
    shop.send([], stream="full")
    df = spark.createDataFrame([columns_of(RICH)], struct_of(Full))
    df.write.format("rink").options(**shop.options("full")).mode("append").save()
    stream = source(shop, spark, stream="full", group="copy", metadata=False)
    copy = stream.writeStream.format("rink").options(**shop.options("full", name="copy"))
    copy = copy.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    copy.start().awaitTermination()
    codec = shop.module.full.codec
    assert [codec.decode(json.dumps(row).encode()) for row in shop.every("full")] == [RICH, RICH]
    both = spark.read.format("rink").options(**shop.options("full", metadata=False)).load()
    assert both.schema == struct_of(Full)
    assert both.collect() == df.union(df).collect()
    assert {row.ms for row in both.select(F.unix_micros("at").alias("ms")).collect()} == {
        int(RICH.at.timestamp()) * 1_000_000 + RICH.at.microsecond
    }


def test_stream_source_reads_each_event_once_over_restarts(shop, spark, tmp_path):
    """`spark.readStream`, each event once over restarts and replays"""
    df = source(shop, spark, group="q")
    shop.send(RECORDS[:100])
    first = run(df, Noted(), tmp_path)
    assert run(df, Noted(), tmp_path).rows == []
    shop.send(RECORDS[100:200])
    second = run(df, Noted(), tmp_path)
    forget_last_commit(tmp_path)
    assert run(df, Noted(), tmp_path).batches == second.batches
    shop.send(RECORDS[200:])
    third = Noted()
    query = start(df, third, tmp_path, processingTime="50 milliseconds")
    until(lambda: third.rows)
    # Batches in Spark's commit log are passed, without a further event.
    until(lambda: len(set(offset_of(shop, "q"))) == 1)
    query.stop()
    assert sorted(first.rows + second.rows + third.rows) == EVERY


def test_trimming_waits_for_a_batch_that_is_not_committed(shop, spark, tmp_path):
    """trimming waits for what the checkpoint still needs"""
    shop.send(RECORDS[:50], hold=False)
    df = source(shop, spark, group="q")
    first = run(df, Noted(), tmp_path)
    shop.send(RECORDS[50:100], hold=False)
    with pytest.raises(PySparkException, match="fails on purpose"):
        run(df, Noted(fails=True), tmp_path)
    with pytest.raises(PySparkException, match="fails on purpose"):
        run(df, Noted(fails=True), tmp_path)
    shop.send(RECORDS[100:], hold=False)
    second = run(df, Noted(), tmp_path)
    assert set(EVERY[50:100]) <= set(second.rows)
    third = run(df, Noted(), tmp_path)
    assert sorted(first.rows + second.rows + third.rows) == EVERY
    run(df, Noted(), tmp_path)
    assert len(set(offset_of(shop, "q"))) == 1


def test_another_checkpoint_of_one_group_is_refused(shop, spark, tmp_path):
    """another checkpoint under the same `group` is refused"""
    shop.send(RECORDS)
    first = Noted()
    query = start(
        source(shop, spark, group="q"), first, tmp_path / "a", processingTime="50 milliseconds"
    )
    until(lambda: first.rows == EVERY)
    until(lambda: len(set(offset_of(shop, "q"))) == 1)
    with pytest.raises(PySparkException, match="in use by a query with another checkpoint"):
        run(source(shop, spark, group="q"), Noted(), tmp_path / "b")
    query.stop()


def test_max_offsets_bounds_a_batch_or_is_refused(shop, spark, tmp_path, found):
    """`maxOffsetsPerTrigger`"""
    shop.send(RECORDS)
    df = source(shop, spark, group="q", maxOffsetsPerTrigger=120)
    if HAS_LIMITS:
        sizes = [len(rows) for rows in run(df, Noted(), tmp_path).batches.values()]
        assert sizes == [120, 120, 60]
        return
    with pytest.raises(PySparkException, match=r"maxOffsetsPerTrigger needs PySpark 4\.2 or later"):
        run(df, Noted(), tmp_path)
    found("refused, with the reason")


def test_available_now_reads_what_there_is(shop, spark, tmp_path, found):
    """`Trigger.AvailableNow`"""
    shop.send(RECORDS)
    limit = {"maxOffsetsPerTrigger": 100} if HAS_LIMITS else {}
    noted = run(source(shop, spark, group="q", **limit), Noted(), tmp_path)
    assert noted.rows == EVERY
    assert len(noted.batches) == (3 if HAS_LIMITS else 1)
    found("bounded batches" if HAS_LIMITS else "one batch")


def test_stream_sink_writes_each_batch_once(shop, spark, tmp_path):
    """`df.writeStream`, each batch once over restarts and replays"""
    shop.send([], stream="totals")

    def go(token=1):
        df = totals(source(shop, spark, group="q", fencingToken=token))
        query = df.writeStream.format("rink")
        query = query.options(**shop.options("totals", name="q", fencingToken=token))
        query = query.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        query.start().awaitTermination()

    for records in (RECORDS[:200], RECORDS[200:]):
        shop.send(records)
        go()
    forget_last_commit(tmp_path)
    go(token=2)
    assert sorted(row["total"] for row in shop.every("totals")) == EVERY
    assert shop.staged() == []
    with pytest.raises(PySparkException, match="belongs to a later driver"):
        go(token=1)


# ── fenced batches ───────────────────────────────────────────────────────────────────────────────


def add_up(step, rows):
    for row in rows:
        step.hincrby("sums", row["customer"], row["amount"])
    step.rpush("parts", "part")


class Grant:
    """A role, as far as fences go."""

    def __init__(self, token):
        self.name, self.token = "sums", token


def test_fenced_batches_count_once_and_stale_drivers_are_refused(shop, spark, tmp_path):
    """`fenced`: each part of a batch once, a stale driver refused"""
    guard = RedisGuard(shop.url)

    def write(df, _, out):
        # As many partitions as parts: Spark might leave a shuffle out.
        sums = df.groupBy("customer").agg(F.sum("amount").alias("amount"))
        out.write(sums, add_up, by="customer")

    def go(token, body=write):
        grant = Grant(token)
        df = source(shop, spark, **fence(grant))
        run(df, fenced(body, guard, grant, parts=4), tmp_path)

    def overtaken(df, number, out):
        guard.raise_fence(Fence("sums", 3))
        write(df, number, out)

    def sums():
        return {name.decode(): int(n) for name, n in shop.redis.hgetall("sums").items()}

    wanted = {f"c{k}": sum(row["amount"] for row in RECORDS[k::7]) for k in range(7)}
    for half in (
        RECORDS[:60],
        RECORDS[60:],
    ):  # Redis would take a first batch again for another checkpoint's
        shop.send(half)
        go(1)
    assert sums() == wanted
    assert shop.redis.llen("parts") == 8
    forget_last_commit(tmp_path)
    go(2)
    assert sums() == wanted
    shop.send(RECORDS)
    with pytest.raises(PySparkException, match="StaleToken: token 2 of 'sums' is stale"):
        go(2, overtaken)
    with pytest.raises(StaleToken):
        go(1)
    assert sums() == wanted
    go(3)
    assert sums() == {name: 2 * amount for name, amount in wanted.items()}


# ── roles ────────────────────────────────────────────────────────────────────────────────────────


def test_role_maps_are_those_of_the_scalar_function(spark):
    """role maps: `assign`, `moves`, `plan`"""
    from rink.core.values import Version
    from rink.spark.roles import after, assign, moves, plan

    now = Version(
        number=4, ranks=tuple(f"w{n}" for n in range(9)), scheme="jump", pins={"job/3": "w1"}
    )
    then = after(now, leave=("w3",), join=("new",))
    names = [None, "", "日本/0", *(f"job/{n}" for n in range(3000))]
    df = spark.createDataFrame([(name,) for name in names], "role string")
    ranks = {name: None if name is None else rink.rank_of(name, 9) for name in names}
    rows = assign(df, "role", now).collect()
    assert {row.role: row["rank"] for row in rows} == ranks
    assert {row.role: row.member for row in rows} == {
        name: rank if rank is None else "w1" if name == "job/3" else f"w{rank}"
        for name, rank in ranks.items()
    }
    assert {row["rank"] for row in assign(df, "role", 0).collect()} == {None}
    moved = {
        row.role: (row.member_before, row.member_after)
        for row in moves(df, "role", now, then).collect()
    }
    assert moved
    assert all(then.ranks[ranks[name]] == to for name, (_, to) in moved.items())
    assert plan(df, "role", now, ["w3"], ["new"]).moved == len(moved)


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


def test_jobs_run_by_role_and_end_with_it(driver, spark, tmp_path):
    """`JobRunner`: jobs, whose Spark jobs end with the role"""
    done = driver.run("count", lambda job: job.spark.range(100).count())
    assert done.result() == 100

    def slow(number):
        for step in range(200):
            (tmp_path / f"{number}-{step}").touch()
            time.sleep(0.05)

    job = driver.start(
        "slow", lambda job: job.spark.sparkContext.parallelize(range(2), 2).foreach(slow)
    )
    until(lambda: any(tmp_path.iterdir()))
    driver.client.cut()
    assert job.wait(WAIT_S)
    assert job.state is JobState.LOST
    until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds())


def test_queries_run_by_role_and_go_on_with_the_next_grant(driver, shop, tmp_path):
    """`JobRunner`: streaming queries, source and sink found on its threads"""
    shop.send([], stream="totals")
    shop.send(RECORDS[:150])

    @driver.query("totals")
    def totals_of_orders(job):
        df = totals(source(shop, job.spark, **fence(job.role)))
        query = df.writeStream.format("rink").options(**shop.options("totals", **fence(job.role)))
        query = query.option("checkpointLocation", str(tmp_path))
        return query.trigger(processingTime="50 milliseconds").start()

    until(lambda: len(shop.every("totals")) == 150)
    token = driver.queries[0]._job.token
    driver.client.cut()
    until(driver.queries[0]._job.lost.is_set)
    driver.client.heal()
    shop.send(RECORDS[150:])
    until(lambda: len(shop.every("totals")) >= 300)
    assert sorted(row["total"] for row in shop.every("totals")) == EVERY
    assert driver.queries[0]._job.token > token


def test_history_has_a_groups_versions(rink_etcd, spark):
    """`history`"""
    from rink.spark import history

    with (
        rink.Session(rink_etcd.client("h"), ttl=5) as session,
        rink.Rink(session, "past", name="ann", initial_delay=0, rebalance_delay=0) as ann,
    ):
        ann.wait_settled(WAIT_S)
        past = history(spark, session, "past")
        assert [list(row.ranks) for row in past.versions.collect()][-1] == ["ann"]
        assert past.moves_by_cause().collect()
        assert past.report().versions == past.versions.count()


# ── what is said ─────────────────────────────────────────────────────────────────────────────────


def test_missing_module_is_named_and_the_source_is_found(tmp_path):
    """a module that is missing is named (no DATA_SOURCE_NOT_FOUND)"""
    (tmp_path / "redis.py").write_text(
        "raise ModuleNotFoundError('No module named redis', name='redis')"
    )
    code = (
        "import sys; from driver_process import *; from pyspark.sql import SparkSession\n"
        f"builder = on_this_machine({str(tmp_path)!r}, 'bare', "
        "SparkSession.builder.master('local[1]'))\n"
        f"os.environ['PYTHONPATH'] = {str(tmp_path)!r}\n"
        "spark = builder.getOrCreate(); spark.sparkContext.setLogLevel('OFF')\n"
        "df = spark.range(1).selectExpr('string(id) AS key', 'string(id) AS value')\n"
        "for action in (lambda: spark.read.format('rink').load(), lambda: "
        "df.write.format('rink').mode('append').save()):\n"
        "    try: action()\n"
        "    except Exception as error: print('SAID', ' '.join(str(error).split()))\n"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=WAIT_S
    )
    said = [line for line in done.stdout.splitlines() if line.startswith("SAID")]
    assert len(said) == 2, done.stderr[-2000:]
    for line in said:
        assert "redis" in line.partition("cannot be imported by ")[2]
        assert "etcd-rink[spark]" in line
        assert "DATA_SOURCE_NOT_FOUND" not in line
