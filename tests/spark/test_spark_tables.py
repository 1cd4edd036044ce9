"""Test that a table keeps its options with its columns."""

import pytest
from pyspark.sql import types as T  # noqa: N812

from rink.errors import ConfigError
from rink.spark.datasource import RinkDataSource
from rink.spark.tables import created_with, options_of_read, options_of_write, with_options

COLUMNS = T.StructType([T.StructField("a", T.LongType(), False), T.StructField("b", T.LongType())])
WRITTEN = {
    "app": "shop:app", "stream": "orders", "startingoffsets": "latest", "redis": "redis://one:1",
}  # fmt: skip


def as_spark_says(written, **more):
    """Return the options that Spark passes when it creates a table."""
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
    for url in (
        "redis://:secret@host",
        "rediss://ann:secret@host:1/0",
        "redis://h?password=secret",
        "rediss://h?ssl_keyfile=/k&ssl_password=secret",
        "redis://h?SSL_PASSWORD=secret",
        "unix://:secret@/tmp/s",
    ):
        with pytest.raises(ConfigError, match=r"has a password.*MODULE:FUNCTION") as told:
            created_with(as_spark_says({"redis": url}))
        assert "secret" not in str(told.value)
    assert created_with(as_spark_says({"redis": "redis://host:1"})) == {"redis": "redis://host:1"}


def test_url_that_cannot_be_read_is_told_without_its_password():
    """A slash in the password ends the host; the rest is taken for a port."""
    with pytest.raises(ConfigError, match="redis cannot be used") as told:
        created_with(as_spark_says({"redis": "redis://:secret/more@host:1"}))
    assert "secret" not in str(told.value)
    assert told.value.__cause__ is None


def test_options_travel_with_the_schema_as_the_catalog_keeps_it():
    schema = T.StructType.fromJson(with_options(COLUMNS, WRITTEN).jsonValue())
    assert schema.names == COLUMNS.names
    assert options_of_read({}, schema) == WRITTEN


def test_option_of_a_read_takes_the_place_of_the_tables():
    schema = with_options(COLUMNS, WRITTEN)
    found = options_of_read({"startingOffsets": "earliest"}, schema)
    assert found["startingoffsets"] == "earliest"
    found = options_of_read({"startingTimestamp": "5"}, schema)
    assert "startingoffsets" not in found
    assert "stream" not in options_of_read({"path": "others"}, schema)


@pytest.mark.parametrize("where", [{"appName": "b", "path": "c"}, {"app": "b:app", "Stream": "c"}])
def test_read_that_names_its_stream_has_nothing_of_a_table(where):
    """`.schema(spark.table("orders").schema)` brings the options of orders."""
    found = options_of_read(where, with_options(COLUMNS, WRITTEN))
    assert found == {name.lower(): value for name, value in where.items()}


def test_table_without_options_says_how_to_create_it():
    with pytest.raises(ConfigError, match="without a list of columns"):
        options_of_read({}, COLUMNS)


def test_table_takes_no_option_of_a_sink():
    with pytest.raises(ConfigError, match="a table has no option writeid"):
        created_with(as_spark_says({"app": "shop:app", "writeid": "w"}))


def test_write_has_options_of_its_own_or_is_refused():
    """The columns of INSERT INTO b SELECT * FROM a are those of a."""
    assert options_of_write({"app": "b:app"}) == {"app": "b:app"}
    source = RinkDataSource({})
    for make in (source.writer, source.streamWriter):
        with pytest.raises(ConfigError, match=r"Nothing was written.*df\.write\.format"):
            make(with_options(COLUMNS, WRITTEN), overwrite=False)
