"""Test guards under a real `foreachBatch`.

Replays count once, a stale driver is refused, and so are workers that continue after their job was
cancelled.
"""

import contextlib
import shutil
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
import sqlalchemy as sa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from spark_support import forget_last_commit

import rink
from rink.errors import StaleToken
from rink.guards import Fence, ParquetGuard, RedisGuard, SqlGuard
from rink.spark import FencedStream, fence, fenced
from rink.spark.batches import _cut

WAIT_S = 120
RECORDS = [{"order_id": n, "customer": f"c{n % 7}", "amount": n} for n in range(90)]
SUMS = {f"c{k}": sum(n for n in range(90) if n % 7 == k) for k in range(7)}
ROWS = pa.schema([("customer", pa.string()), ("amount", pa.int64())])
ADD = sa.text(
    "INSERT INTO sums (customer, amount) VALUES (:customer, :amount) "
    "ON CONFLICT (customer) DO UPDATE SET amount = sums.amount + excluded.amount"
)


def until(told, timeout=WAIT_S):
    end = time.monotonic() + timeout
    while not told():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


class Grant:
    """A role, as far as fences go."""

    def __init__(self, token):
        self.name, self.token = "sums", token


# ── stores that add up: what is written twice shows ──────────────────────────────────────────────


def add_in_redis(step, rows):
    for row in rows:
        step.hincrby("sums", row["customer"], row["amount"])


def add_in_sql(step, rows):
    if found := list(rows):
        step.execute(ADD, found)


def add_in_files(step, rows):
    step.write_rows(rows, ROWS)


class InRedis:
    each = staticmethod(add_in_redis)

    def __init__(self, shop):
        self.guard, self.redis = RedisGuard(shop.url), shop.redis

    def sums(self):
        return {name.decode(): int(value) for name, value in self.redis.hgetall("sums").items()}


class InSql:
    each = staticmethod(add_in_sql)

    def __init__(self, url):
        self.guard = SqlGuard(url)
        self.engine = sa.create_engine(url, poolclass=sa.pool.NullPool)
        with self.engine.begin() as connection:
            connection.execute(
                sa.text("CREATE TABLE sums (customer TEXT PRIMARY KEY, amount BIGINT)")
            )

    def sums(self):
        with self.engine.connect() as connection:
            found = connection.execute(sa.text("SELECT customer, amount FROM sums"))
            return {row.customer: row.amount for row in found}


class InFiles:
    each = staticmethod(add_in_files)

    def __init__(self, folder):
        folder.mkdir()
        self.guard = ParquetGuard(folder)

    def sums(self):
        found = Counter()
        for row in self.guard.read().to_pylist():
            found[row["customer"]] += row["amount"]
        return dict(found)


@pytest.fixture(params=["sqlite", "postgres", "parquet", "redis"])
def store(request, shop, tmp_path):
    with contextlib.ExitStack() as opened:
        if request.param == "redis":
            made = InRedis(shop)
        elif request.param == "parquet":
            made = InFiles(tmp_path / "files")
        elif request.param == "sqlite":
            made = InSql(f"sqlite:///{tmp_path}/data.db")
        else:
            request.applymarker(pytest.mark.timeout(600))
            sys.path.append(str(Path(__file__).parents[1] / "guards"))
            from postgres import local_postgres

            made = InSql(opened.enter_context(local_postgres()).url)
        yield made
        made.guard.close()


def run(shop, spark, folder, store, token, *, body=None, each=None, guard=None):
    """Start the query that adds up, as a driver with this token."""

    def write(df, _, out):
        amounts = df.groupBy("customer").agg(F.sum("amount").alias("amount"))
        out.write(amounts, each or store.each, by="customer")

    grant = Grant(token)
    return (
        spark.readStream.format("rink")
        .options(**shop.options(maxOffsetsPerTrigger=60, **fence(grant)))
        .load()
        .writeStream.foreachBatch(fenced(body or write, guard or store.guard, grant, parts=3))
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )


@pytest.mark.parametrize(
    "store",
    ["sqlite", *(pytest.param(one, marks=pytest.mark.deep) for one in ("postgres", "parquet"))],
    indirect=True,
)
def test_batch_counts_once_over_a_replay_and_stale_driver_is_refused(store, shop, spark, tmp_path):
    shop.send(RECORDS)
    run(shop, spark, tmp_path / "q", store, token=1).awaitTermination()
    assert store.sums() == SUMS
    forget_last_commit(tmp_path / "q")
    run(shop, spark, tmp_path / "q", store, token=2).awaitTermination()
    assert store.sums() == SUMS
    with pytest.raises(StaleToken):
        run(shop, spark, tmp_path / "q", store, token=1)

    def overtaken(df, _, out):
        store.guard.raise_fence(Fence("sums", 3))
        out.write(df.select("customer", "amount"), store.each, by="customer")

    shop.send(RECORDS)
    with pytest.raises(PySparkException, match=r"StaleToken: token 2 of 'sums' is stale"):
        run(shop, spark, tmp_path / "q", store, token=2, body=overtaken).awaitTermination()
    assert store.sums() == SUMS


@pytest.mark.deep
def test_checkpoint_restored_from_a_backup_is_refused(store, shop, spark, tmp_path):
    backup, folder = tmp_path / "backup", tmp_path / "q"
    shop.send(RECORDS)
    run(shop, spark, folder, store, token=1).awaitTermination()
    shutil.copytree(folder, backup)
    shop.send(RECORDS)
    run(shop, spark, folder, store, token=2).awaitTermination()  # two batches
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    with pytest.raises(
        PySparkException, match=r"StateError: <.*Guard.*, part \d.* was rolled back"
    ):
        run(shop, spark, folder, store, token=3).awaitTermination()
    assert store.sums() == {name: 2 * amount for name, amount in SUMS.items()}


class Cut:
    """A guard that only records which rows were in which part."""

    def __init__(self):
        self.parts = {}

    def __getstate__(self):
        return {}

    def raise_fence(self, fence):
        pass

    def begin(self, fence, batch):
        pass

    def part(self, fence, batch, number):
        return CutPart()

    def finish(self, fence, batch, results):
        self.parts = dict(enumerate(results))


class CutPart:
    written = None

    def __enter__(self):
        self.result = []
        return self

    def __exit__(self, *_):
        pass


@pytest.mark.deep
def test_batch_that_lies_by_its_keys_is_cut_by_its_keys_alone(shop, spark, tmp_path):
    """Cut a batch after a groupBy() into as many partitions.

    There Spark leaves out a repartition() by the same keys, and joins small ones.
    """
    shop.send(RECORDS)
    guard = Cut()

    def write(df, _, out):
        amounts = df.groupBy("customer").agg(F.sum("amount").alias("amount"))
        assert spark.conf.get("spark.sql.shuffle.partitions") == "4"
        assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
        out.write(amounts, lambda step, rows: step.result.extend(rows), by="customer")

    grant = Grant(1)
    (
        spark.readStream.format("rink")
        .options(**shop.options(**fence(grant)))
        .load()
        .writeStream.foreachBatch(fenced(write, guard, grant, parts=4))
        .option("checkpointLocation", str(tmp_path / "q"))
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )
    customers = spark.createDataFrame([(name,) for name in SUMS], "customer string")
    hashed = customers.select("customer", F.pmod(F.hash("customer"), F.lit(4)).alias("part"))
    wanted = {row.customer: row.part for row in hashed.collect()}
    assert len(set(wanted.values())) > 1
    found = {row["customer"]: part for part, rows in guard.parts.items() for row in rows}
    assert found == wanted
    assert {row["customer"]: row["amount"] for rows in guard.parts.values() for row in rows} == SUMS
    assert all(
        rows == sorted(rows, key=lambda row: row["customer"]) for rows in guard.parts.values()
    )
    assert all(
        row.keys() == {"customer", "amount"} for rows in guard.parts.values() for row in rows
    )


def keep_order(step, rows):
    step.rpush("order", ",".join(row["name"] for row in rows))


@pytest.mark.deep
def test_keys_by_which_other_bytes_are_equal_are_refused(spark):
    """Spark's hash differs for them: a replay might choose another of them."""
    rows = spark.createDataFrame([("AA", 1), ("aa", 2)], "carrier string, minutes int")
    collated = rows.select(F.collate("carrier", "UTF8_LCASE").alias("carrier"), "minutes")
    with pytest.raises(rink.ConfigError, match=r"by=\['carrier'\].* has the collation UTF8_LCASE"):
        _cut(collated, 2, ["carrier"])
    assert _cut(collated, 2, ["minutes"]).count() == 2
    plain = collated.groupBy(F.lower(F.collate("carrier", "UTF8_BINARY")).alias("carrier")).count()
    assert [row["count"] for row in _cut(plain, 2, ["carrier"]).collect()] == [2]


def test_rows_of_a_part_come_in_order_of_their_key(shop, spark, tmp_path):
    def write(df, _, out):
        names = [(f"n{n * 7919 % 100:02}",) for n in range(100)]
        out.write(spark.createDataFrame(names, "name string").repartition(4), keep_order, by="name")

    shop.send(RECORDS[:1])
    run(shop, spark, tmp_path / "q", InRedis(shop), 1, body=write).awaitTermination()
    parts = [part.decode().split(",") for part in shop.redis.lrange("order", 0, -1)]
    assert sorted(name for part in parts for name in part) == [f"n{n:02}" for n in range(100)]
    assert len(parts) == 3
    assert parts == [sorted(part) for part in parts]


# ── workers that go on ───────────────────────────────────────────────────────────────────────────


class Waits:
    """A part function that has its rows, and continues once a file exists.

    That is long after its job was cancelled.
    """

    def __init__(self, each, folder):
        self.each, self.folder = each, folder

    def __call__(self, step, rows):
        found = list(rows)
        self.each(step, found)
        Path(self.folder, "begun").touch()
        until(Path(self.folder, "go").exists)


class Watched:
    """A guard that records what became of each part when it was left."""

    def __init__(self, guard, folder):
        self.guard, self.folder = guard, folder
        self.raise_fence, self.begin, self.finish = guard.raise_fence, guard.begin, guard.finish

    def __reduce__(self):
        return Watched, (self.guard, self.folder)

    @contextlib.contextmanager
    def watching(self, part):
        try:
            with part as step:
                yield step
        except StaleToken:
            Path(self.folder, f"refused {part.number}").touch()
            raise
        Path(self.folder, f"accepted {part.number}").touch()

    def part(self, *given):
        return Part(self, self.guard.part(*given))


class Part:
    def __init__(self, watched, part):
        self.part, self.entered = part, watched.watching(part)

    def __enter__(self):
        return self.entered.__enter__()

    def __exit__(self, *error):
        return self.entered.__exit__(*error)

    @property
    def result(self):
        return self.part.result


@pytest.mark.parametrize(
    "store",
    ["redis", *(pytest.param(one, marks=pytest.mark.deep) for one in ("postgres", "parquet"))],
    indirect=True,
)
def test_worker_that_goes_on_after_its_job_was_cancelled_writes_nothing(
    store, shop, spark, tmp_path
):
    """SQLite is not here: a part keeps the file, so raising waits for it."""
    shop.send(RECORDS)
    folder = tmp_path / "notes"
    folder.mkdir()
    query = run(
        shop, spark, tmp_path / "q", store, 1,
        each=Waits(store.each, folder), guard=Watched(store.guard, folder),
    )  # fmt: skip
    until((folder / "begun").exists)
    spark.sparkContext.cancelJobGroup(str(query.runId))
    store.guard.raise_fence(Fence("sums", 2))
    (folder / "go").touch()
    until(lambda: list(folder.glob("refused *")))
    with contextlib.suppress(PySparkException):
        query.awaitTermination()
    assert not list(folder.glob("accepted *"))
    assert store.sums() == {}
    run(shop, spark, tmp_path / "q", store, token=2).awaitTermination()
    assert store.sums() == SUMS


LARGE = "x" * 400_000


def few_then_many(folder):
    """Yield rows: some are staged at once, the others once a file exists."""

    def rows(batches):
        found = pa.Table.from_batches(batches).to_pylist()
        for number, row in enumerate(found):
            if number == len(found) // 2:
                Path(folder, "begun").touch()
                until(Path(folder, "go").exists)
                Path(folder, "went on").touch()
            value = f"{row['order_id']} {LARGE}".encode()
            yield pa.RecordBatch.from_pylist([{"key": row["customer"], "value": value}])

    return rows


def write_stream(shop, spark, folder, token):
    grant = Grant(token)
    large = spark.readStream.format("rink").options(**shop.options(**fence(grant))).load()
    where = {"appName": "shop", "stream": "totals", "redis": shop.url}
    return (
        large.repartition(1)
        .mapInArrow(few_then_many(folder), "key string, value binary")
        .writeStream.format("rink")
        .options(**where, **fence(grant))
        .option("checkpointLocation", str(folder / "q"))
        .trigger(availableNow=True)
        .start()
    )


def numbers(shop):
    found = []
    for number in range(shop.module.totals.partition_count):
        entries = shop.redis.xrange(shop.module.totals.names.partition(number).stream)
        found += [int(fields[b"d"].split()[0]) for _, fields in entries]
    return sorted(found)


@pytest.mark.deep
def test_what_a_cancelled_write_has_put_aside_is_never_published(shop, spark, tmp_path):
    shop.send(RECORDS[:40])
    shop.send([], stream="totals")
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    try:
        query = write_stream(shop, spark, tmp_path, token=1)
        until((tmp_path / "begun").exists)
        until(shop.staged)
        spark.sparkContext.cancelJobGroup(str(query.runId))
        FencedStream(**shop.options("totals")).raise_fence(Fence("sums", 2))
        (tmp_path / "go").touch()
        until((tmp_path / "went on").exists)
        with pytest.raises(PySparkException):
            query.awaitTermination()
        assert numbers(shop) == []
        write_stream(shop, spark, tmp_path, token=2).awaitTermination()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert numbers(shop) == list(range(40))
    assert all(shop.redis.ttl(key) > 0 for key in shop.staged())
