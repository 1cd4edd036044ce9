"""Test the effect of each option on a real Redis, without Spark."""

import contextlib
import sys
import time
import types

import attrs
import pyarrow as pa
import pytest
import redis
from pyspark.sql import types as T  # noqa: N812
from spark_support import COUNT, Shop

from rink.errors import ConfigError, StaleToken, StateError
from rink.redis.blocking_client import ANSWER_TIMEOUT_S
from rink.spark.datasource import RinkDataSource
from rink.streams import App, PartitionFull, Record

ROWS = T.StructType([T.StructField("key", T.StringType()), T.StructField("value", T.BinaryType())])


class Order(Record):
    order_id: int


@pytest.fixture
def shop(rink_redis, monkeypatch):
    module = types.ModuleType("options_on_redis")
    module.app = App("shop", redis="redis://127.0.0.1:1")
    module.app.stream("orders", record=Order, partition_by="order_id", partition_count=COUNT)
    module.Order = Order
    module.client = lambda: redis.Redis.from_url(
        rink_redis.url, client_name="made", socket_timeout=10
    )
    module.asynchronous = lambda: redis.asyncio.Redis.from_url(rink_redis.url)
    monkeypatch.setitem(sys.modules, "options_on_redis", module)
    with contextlib.closing(Shop(rink_redis.url)) as made:
        yield made


def source(shop, **given):
    where = {"appName": "shop", "stream": "orders", "redis": shop.url, "record": "raw"}
    options = {name: str(value) for name, value in {**where, **given}.items()}
    return RinkDataSource({name: value for name, value in options.items() if value})


def read(made):
    reader = made.reader(made.schema())
    found = (page for part in reader.partitions() for page in reader.read(part))
    return [row for page in found for row in page.to_pylist()]


def query(shop, **given):
    made = source(shop, **given)
    return made.streamReader(made.schema())


def writer(shop, **given):
    """Return a sink of bytes; each of its batches has one task."""
    return source(shop, record="", **given).streamWriter(ROWS, overwrite=False)


def write(made, *values, number=0):
    page = pa.RecordBatch.from_pydict({"key": ["k"] * len(values), "value": list(values)})
    message = attrs.evolve(made.write(iter([page])), query="of Spark")
    made.commit([message], number)
    return message


def lengths(shop):
    return sorted(shop.redis.xlen(shop.key(number)) for number in range(COUNT))


# ── where ────────────────────────────────────────────────────────────────────────────────────────


def test_redis_is_where_the_option_says_though_the_app_says_otherwise(shop):
    shop.redis.xadd(shop.key(), {"d": b'{"order_id":7}'})
    given = {"app": "options_on_redis:app", "appName": "", "record": ""}
    assert [row["order_id"] for row in read(source(shop, **given))] == [7]


def test_function_may_make_the_client(shop):
    shop.add(count=2)
    assert len(read(source(shop, redis="options_on_redis:client"))) == 2
    assert "name=made" in str(shop.redis.execute_command("CLIENT", "LIST"))
    with pytest.raises(ConfigError, match="must return a blocking client"):
        read(source(shop, redis="options_on_redis:asynchronous"))


def test_record_class_will_do_without_an_app(shop):
    shop.redis.xadd(shop.key(), {"d": b'{"order_id":7}'})
    found = read(source(shop, record="options_on_redis:Order", metadata="false"))
    assert found == [{"order_id": 7}]


def test_bytes_have_their_place_beside_them_or_not(shop):
    (at,) = shop.add(number=1)
    (row,) = read(source(shop))
    assert (row["value"], row["_partition"], row["_id"]) == (b"1", 1, at)
    assert read(source(shop, metadata="false")) == [{"value": b"1"}]


def test_call_is_repeated_for_as_long_as_the_option_says(shop):
    began = time.monotonic()
    with pytest.raises(Exception, match="cannot be reached"):
        read(source(shop, redis="redis://127.0.0.1:1", redisTimeout="0.2"))
    assert time.monotonic() - began < ANSWER_TIMEOUT_S


# ── under which name, and under which token ──────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["group", "name"])
def test_query_is_known_by_its_name(shop, name):
    shop.add(count=2)
    query(shop, **{name: "totals"}).initialOffset()
    assert shop.offset("spark/totals") == "0-0"


def test_group_counts_where_both_are_given(shop):
    query(shop, group="old", name="totals").initialOffset()
    assert (shop.offset("spark/old"), shop.offset("spark/totals")) == ("0-0", None)


def test_query_under_a_lower_token_is_refused(shop):
    newer = query(shop, group="q", fencingToken=6)
    newer.latestOffset(newer.initialOffset(), newer.getDefaultReadLimit())
    for older in ({"fencingToken": 5}, {}):
        with pytest.raises(StaleToken):
            query(shop, group="q", **older).initialOffset()


# ── the sink ─────────────────────────────────────────────────────────────────────────────────────


def by_hasher(shop):
    """Declare a stream whose hasher sends every key to the last partition.

    `app` is the option for it.
    """
    made = sys.modules["options_on_redis"].app.stream(
        "orders-2", record=Order, partition_by="order_id", partition_count=COUNT,
        hasher=lambda key: -1
    )  # fmt: skip
    shop.redis.hset(
        made.names.about, mapping={"format": 1, "partitions": COUNT, "hasher": made.hasher}
    )
    return made, {"appName": "", "app": "options_on_redis:app", "stream": "orders-2"}


def test_rows_go_where_the_hasher_of_the_stream_says(shop):
    made, app = by_hasher(shop)
    page = pa.RecordBatch.from_pydict({"order_id": [1, 2, 3]})
    sink = source(shop, record="", name="s", **app).streamWriter(
        T.StructType([T.StructField("order_id", T.LongType())]), overwrite=False
    )
    sink.commit([attrs.evolve(sink.write(iter([page])), query="of Spark")], 0)
    assert shop.redis.xlen(made.names.partition(COUNT - 1).stream) == 3


def test_bytes_without_the_hasher_of_their_stream_are_refused(shop):
    by_hasher(shop)
    with pytest.raises(ConfigError, match=r"has its own hasher .* option app=MODULE:ATTR"):
        writer(shop, stream="orders-2")


def test_app_with_another_hasher_than_redis_is_refused(shop):
    made, app = by_hasher(shop)
    shop.redis.hset(made.names.about, "hasher", "0123")
    with pytest.raises(StateError, match="a hasher of fingerprint 0123 in Redis"):
        read(source(shop, record="", **app))


def test_sink_under_a_lower_token_is_refused(shop):
    write(writer(shop, name="s", fencingToken=6), b"a")
    with pytest.raises(StaleToken):
        writer(shop, name="s", fencingToken=5)


def test_full_partition_is_waited_for_as_long_as_the_option_says(shop):
    for number in range(COUNT):
        shop.hold(number=number)
    made = writer(shop, name="s", partitionSize=2, fullTimeout="0.2")
    with pytest.raises(PartitionFull, match=r"full for 0\.2 s: it holds 2 events"):
        write(made, b"a", b"b", b"c")
    assert lengths(shop) == [0, 0, 2]


def test_oldest_give_way_where_the_option_says_so(shop):
    for number in range(COUNT):
        shop.hold(number=number)
    write(writer(shop, name="s", partitionSize=2, trim="oldest", fullTimeout="0.2"), b"a", b"b")
    write(writer(shop, name="s", partitionSize=2, trim="oldest", fullTimeout="0.2"), b"c", number=1)
    assert lengths(shop) == [0, 0, 2]


def test_what_a_task_put_aside_is_kept_for_as_long_as_the_option_says(shop):
    page = pa.RecordBatch.from_pydict({"key": ["k"], "value": [b"a"]})
    writer(shop, name="s", stagingTtl=77).write(iter([page]))
    (staged,) = shop.redis.keys("*:staged:*")
    assert 0 < shop.redis.ttl(staged) <= 77


@pytest.mark.parametrize(
    ("option", "bad"),
    [
        ("fullTimeout", "0"), ("fullTimeout", "soon"), ("stagingTtl", "inf"), ("stagingTtl", "-1"),
        ("partitionSize", "0"), ("trim", "newest"), ("fencingToken", "one"),
        ("redisTimeout", "nan"),
    ],
)  # fmt: skip
def test_what_a_sink_cannot_use_is_told(shop, option, bad):
    with pytest.raises(ConfigError, match=f"the option {option} (is|must be) .*{bad}"):
        writer(shop, name="s", **{option: bad})


@pytest.mark.parametrize(
    ("option", "bad"),
    [
        ("startingOffsets", "first"), ("startingTimestamp", "noon"), ("maxOffsetsPerTrigger", "0"),
        ("failOnDataLoss", "no"), ("metadata", "1"), ("fencingToken", "-1"), ("redisTimeout", "0"),
    ],
)  # fmt: skip
def test_what_a_query_cannot_use_is_told(shop, option, bad):
    with pytest.raises(ConfigError, match=f"the option {option} (is|must be) .*{bad}"):
        query(shop, group="q", **{option: bad})


@pytest.mark.parametrize("option", ["fencingToken", "startingTimestamp"])
def test_option_without_a_value_is_not_one_that_is_left_out(shop, option):
    options = {**source(shop).options, "group": "q", option: ""}
    with pytest.raises(ConfigError, match=f"the option {option} is empty"):
        RinkDataSource(options).streamReader(ROWS)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp"])
def test_query_has_no_end(shop, option):
    with pytest.raises(ConfigError, match=f"the option {option} is for a batch"):
        query(shop, group="q", **{option: "latest"})


def test_offsets_of_other_partitions_are_refused(shop):
    with pytest.raises(
        ConfigError, match=r"partitions 0 to 2, but offsets were given for \[0, 7\]"
    ):
        read(source(shop, startingOffsets='{"0": "0-0", "7": "0-0"}'))


def test_batch_whose_query_has_no_id_is_refused(shop):
    """Two queries without an id would count as one."""
    made = writer(shop, name="s")
    page = pa.RecordBatch.from_pydict({"key": ["k"], "value": [b"1"]})
    message = made.write(iter([page]))
    with pytest.raises(StateError, match=r"sink 's' .*no query id"):
        made.commit([attrs.evolve(message, query="")], 0)
    assert sum(lengths(shop)) == 0
    assert shop.redis.keys("*:staged:*") == []
