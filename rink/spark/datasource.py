"""`format("rink")`: streams of rink.streams as tables and streams of Spark."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from rink.spark import schema as schemas
from rink.spark import tables
from rink.spark.options import Options, StreamPlace
from rink.spark.sink.writers import BatchWriter, StreamWriter
from rink.spark.source.readers import BatchReader, StreamReader


class RinkDataSource(DataSource):
    """Reads and writes the streams of an app; see docs/spark.md for its options."""

    @classmethod
    def name(cls) -> str:
        """Return what `format(...)` is given."""
        return "rink"

    def schema(self) -> StructType:
        """Return the columns of a stream: those of its record class, or `value`."""
        created = tables.created_with(self.options)
        options = Options(self.options if created is None else created, of_sink=False)
        metadata = options.flag("metadata", True)
        columns = schemas.columns_of(StreamPlace.of(options).record_class(), metadata=metadata)
        return columns if created is None else tables.with_options(columns, created)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what reads a stream once."""
        return BatchReader(self._options_of_read(schema), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return what reads a stream as a query does."""
        return StreamReader(self._options_of_read(schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return what writes a DataFrame once."""
        return BatchWriter(self._options_of_write(), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        """Return what writes the batches of a query."""
        return StreamWriter(self._options_of_write(), schema, overwrite=overwrite)

    def _options_of_read(self, schema: StructType) -> Options:
        return Options(tables.options_of_read(self.options, schema), of_sink=False)

    def _options_of_write(self) -> Options:
        return Options(tables.options_of_write(self.options), of_sink=True)
