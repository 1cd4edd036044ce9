"""A table keeps its options with its columns."""

import pytest
from pyspark.sql import types as T  # noqa: N812

from rink.errors import ConfigError
from rink.spark.tables import all_options, created_with, with_options

COLUMNS = T.StructType([T.StructField("a", T.LongType(), False), T.StructField("b", T.LongType())])
WRITTEN = {"app": "shop:app", "stream": "orders", "startingoffsets": "latest", "writeid": "w"}


def as_spark_says(written, **more):
    """What Spark hands over when it creates a table."""
    marked = {f"option.{name}": value for name, value in written.items()}
    return {**written, **marked, "provider": "rink", "owner": "ann", **more}


def test_created_table_keeps_what_stands_in_its_options():
    found = created_with(as_spark_says(WRITTEN, comment="x", retention="of the table's properties"))
    assert found == WRITTEN
    assert created_with(WRITTEN) is None
    assert created_with(as_spark_says({}, location="orders")) == {"path": "orders"}


def test_created_table_refuses_what_is_no_option_and_a_password():
    with pytest.raises(ConfigError, match=r"a table has no option strem .did you mean stream"):
        created_with(as_spark_says({"strem": "orders"}))
    for url in ("redis://:secret@host", "rediss://ann:secret@host:1/0", "redis://h?password=s"):
        with pytest.raises(ConfigError, match=r"has a password.*MODULE:FUNCTION") as told:
            created_with(as_spark_says({"redis": url}))
        assert "secret" not in str(told.value)
    assert created_with(as_spark_says({"redis": "redis://host:1"})) == {"redis": "redis://host:1"}


def test_options_travel_with_the_schema_as_the_catalog_keeps_it():
    schema = T.StructType.fromJson(with_options(COLUMNS, WRITTEN).jsonValue())
    assert schema.names == COLUMNS.names
    source = all_options({}, schema, of_sink=False)
    assert source == {"app": "shop:app", "stream": "orders", "startingoffsets": "latest"}
    sink = all_options({"writeId": "x"}, schema, of_sink=True)
    assert sink == {"app": "shop:app", "stream": "orders", "writeid": "x"}


def test_option_of_a_read_takes_the_place_of_the_tables():
    schema = with_options(COLUMNS, WRITTEN)
    found = all_options({"startingOffsets": "earliest"}, schema, of_sink=False)
    assert found["startingoffsets"] == "earliest"
    found = all_options({"startingTimestamp": "5"}, schema, of_sink=False)
    assert "startingoffsets" not in found
    assert "stream" not in all_options({"path": "others"}, schema, of_sink=False)


def test_table_without_options_says_how_to_create_it():
    with pytest.raises(ConfigError, match="without a list of columns"):
        all_options({}, COLUMNS, of_sink=False)
