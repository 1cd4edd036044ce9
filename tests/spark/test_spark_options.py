"""Test the options of source and sink."""

import re
import sys
import types
from pathlib import Path

import attrs
import pytest
import redis

from rink.errors import ConfigError
from rink.spark import options
from rink.spark.options import Options, StreamPlace
from rink.spark.redis_connection import connection
from rink.streams import App, Record


class Order(Record):
    customer: str


@pytest.fixture
def shop(monkeypatch):
    module = types.ModuleType("options_shop")
    module.app = App("shop", redis="redis://example:1")
    module.app.stream("orders", record=Order, partition_by="customer")
    module.made = App("made", redis=object)
    module.made.stream("orders", record=Order, partition_by="customer")
    module.Order = Order
    monkeypatch.setitem(sys.modules, "options_shop", module)
    return module


def source(**given):
    return Options({name: str(value) for name, value in given.items()}, of_sink=False)


def test_app_says_where_its_streams_are(shop):
    place = StreamPlace.of(source(app="options_shop:app", stream="orders"))
    assert (place.app_name, place.redis, place.record_class()) == (
        "shop",
        "redis://example:1",
        Order,
    )
    assert place.declared() is shop.app.streams["orders"]
    assert place.codec() is shop.app.streams["orders"].codec


def test_without_an_app_its_name_will_do(shop):
    place = StreamPlace.of(source(appName="shop", redis="redis://x:1", stream="orders"))
    assert place.declared() is None
    assert place.names == shop.app.streams["orders"].names
    with_class = attrs.evolve(place, record="options_shop:Order")
    assert with_class.record_class() is Order
    assert with_class.codec().decode(b'{"customer":"ann"}') == Order(customer="ann")


def test_each_query_of_a_process_is_as_patient_as_it_was_told_to_be(shop):
    def patience(**given):
        place = StreamPlace.of(source(app="options_shop:app", stream="orders", **given))
        return connection(place), place.patience

    (short, told), (long, more) = patience(redisTimeout=0.25), patience(redisTimeout=7)
    assert (short._patience, long._patience) == (told, more) == (0.25, 7.0)
    assert patience()[0]._patience == 30.0
    assert patience(redisTimeout=7)[0] is long  # each is made once
    assert isinstance(long.client, redis.Redis)


def test_raw_means_bytes_whatever_the_app_says(shop):
    place = StreamPlace.of(source(app="options_shop:app", stream="orders", record="raw"))
    assert place.record_class() is None


def test_names_are_found_in_any_case(shop):
    assert source(MAXOFFSETSPERTRIGGER=5).count("maxOffsetsPerTrigger") == 5


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"stream": "orders"}, "one of the options app"),
        ({"app": "options_shop:app", "appName": "shop", "stream": "orders"}, "one of the options"),
        ({"app": "options_shop:app"}, "stream is missing"),
        (
            {"app": "options_shop:app", "stream": "others"},
            r"no stream 'others'; it has \['orders'\]",
        ),
        ({"app": "options_shop:none", "stream": "orders"}, "cannot be loaded.*none"),
        ({"app": "no_such_module:app", "stream": "orders"}, "cannot be loaded.*executors"),
        ({"app": "options_shop:Order", "stream": "orders"}, "not a rink.streams.App"),
        ({"app": "options_shop", "stream": "orders"}, "MODULE:ATTR"),
        ({"app": "options_shop:made", "stream": "orders"}, "redis is missing"),
        ({"appName": "shop", "stream": "orders"}, "redis is missing"),
        ({"appName": "shop", "stream": "", "redis": "redis://x"}, "stream is empty"),
        (
            {"app": "options_shop:app", "stream": "orders", "record": "options_shop:app"},
            "not a record class",
        ),
        ({"app": "options_shop:app", "stream": "orders", "redisTimeout": "soon"}, "redisTimeout"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_told(shop, given, told):
    with pytest.raises(ConfigError, match=told):
        StreamPlace.of(source(**given))


@pytest.mark.parametrize("value", ["", " "])
@pytest.mark.parametrize(
    ("name", "of_sink"),
    [
        ("startingTimestamp", False), ("endingTimestamp", False), ("fencingToken", False),
        ("group", False),
        *[(name, True) for name in ("writeId", "fencingToken", "partitionSize", "path")],
    ],
)  # fmt: skip
def test_empty_option_is_refused_and_does_not_count_as_left_out(name, of_sink, value):
    """Such as an unset variable: a read of everything, or a write unfenced."""
    with pytest.raises(ConfigError, match=rf"option {name} is empty: .*Give it a value"):
        Options({name: value}, of_sink=of_sink)


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("startingOffset", "startingOffsets"),
        ("StartingOffsets ", "startingOffsets"),
        ("startingTimestamps", "startingTimestamp"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("failOnDataLost", "failOnDataLoss"),
        ("apName", "appName"),
    ],
)
def test_misspelt_option_is_told_its_right_name(wrong, right):
    with pytest.raises(ConfigError, match=rf"no option {wrong.lower()} \(did you mean {right}\?\)"):
        source(**{wrong: 5})


def test_path_names_the_stream_as_load_does(shop):
    made = StreamPlace.of(source(app="options_shop:app", path="orders"))
    assert made.stream == "orders"
    assert source(path="orders", stream="orders").needed("stream") == "orders"
    with pytest.raises(ConfigError, match=r"stream is 'orders', and load, .* names 'others'"):
        source(path="others", stream="orders")
    with pytest.raises(ConfigError, match="reads one stream"):
        source(paths='["orders", "others"]')


def test_option_that_there_is_not_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match=r"no option speed\. It has .*maxOffsetsPerTrigger"):
        source(speed=5)
    with pytest.raises(ConfigError, match="as a sink has no option startingoffsets"):
        Options({"startingOffsets": "latest"}, of_sink=True)
    Options({"checkpointLocation": "/tmp/x", "path": "x", "queryName": "q"}, of_sink=True)


PAGE = Path(__file__).parents[2] / "docs" / "spark.md"


def rows_below(title):
    """Return the options in the first table below a title of docs/spark.md."""
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]
    table = section[section.index("\n| ") :].lstrip().split("\n\n")[0]
    heads = re.findall(r"^\| (`.*?) \| ", table, re.MULTILINE)
    return {name for head in heads for name in re.findall(r"`(\w+)`", head)}


def test_each_option_has_its_row_in_the_docs_and_each_row_is_an_option():
    # appName and record stand beside app. The sink names its stream as the source does.
    common, apart = set(options._COMMON), {"appName", "record"}
    assert rows_below("Reading a stream") == (common | set(options._SOURCE)) - apart - {"name"}
    assert rows_below("Writing to a stream") == set(options._SINK) | {"fencingToken"}


def edge(**given):
    return source(**given).edge("startingOffsets", "startingTimestamp", "earliest")


def test_where_to_begin():
    assert edge() == "earliest"
    assert edge(startingOffsets="latest") == "latest"
    assert edge(startingOffsets='{"0": "5-0", "1": "0-0"}') == {0: "5-0", 1: "0-0"}
    # Redis writes "below" so: the last entry before that time.
    assert edge(startingTimestamp="1700000000000") == "(1700000000000-0"
    assert edge(startingTimestamp="2023-11-14T22:13:20+00:00") == "(1700000000000-0"
    assert edge(startingTimestamp="2023-11-14T23:13:20.001+01:00") == "(1700000000001-0"
    assert edge(startingTimestamp="0") == "0-0"  # no id is below
    assert edge(startingTimestamp="1970-01-01T00:00:00Z") == "0-0"
    berlin = edge(startingTimestamp="2023-11-14 23:13:20", timeZone="Europe/Berlin")
    assert berlin == "(1700000000000-0"


def test_each_partition_has_its_own_edge_and_ids_have_one_notation():
    given = '{"0": "0005-00", "1": "earliest", "2": "latest"}'
    assert edge(startingOffsets=given) == {0: "5-0", 1: "earliest", 2: "latest"}


def test_where_to_end():
    def end(**given):
        return source(**given).edge("endingOffsets", "endingTimestamp", "latest")

    assert end() == "latest"
    assert end(endingOffsets='{"0": "5-0", "1": "latest"}') == {0: "5-0", 1: "latest"}
    assert end(endingTimestamp="1700000000000") == "(1700000000000-0"
    for bad in ("earliest", '{"0": "earliest"}', "5-0"):
        with pytest.raises(ConfigError, match="endingOffsets is latest or JSON"):
            end(endingOffsets=bad)
    with pytest.raises(ConfigError, match=r"endingTimestamp is '2023.*no time zone"):
        end(endingTimestamp="2023-11-14T22:13:20")
    with pytest.raises(ConfigError, match="one of the options endingOffsets and endingTimestamp"):
        end(endingTimestamp="5", endingOffsets="latest")


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "first"},
        {"startingOffsets": "[]"},
        {"startingOffsets": "{}"},
        {"startingOffsets": '{"0": 5}'},
        {"startingOffsets": '{"a": "5-0"}'},
        {"startingTimestamp": "yesterday"},
        {"startingTimestamp": "2023-11-14T22:13:20"},
        {"startingTimestamp": "1960-01-01T00:00:00+00:00"},
        {"startingTimestamp": "5", "startingOffsets": "latest"},
    ],
)
def test_where_not_to_begin(given):
    with pytest.raises(ConfigError, match="starting"):
        edge(**given)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "²"])
def test_count_is_a_whole_number_above_0(text):
    with pytest.raises(ConfigError, match="whole number"):
        source(maxOffsetsPerTrigger=text).count("maxOffsetsPerTrigger")


def test_flag_is_true_or_false():
    assert source(metadata="FALSE").flag("metadata", True) is False
    with pytest.raises(ConfigError, match="true or false"):
        source(metadata="no").flag("metadata", True)
