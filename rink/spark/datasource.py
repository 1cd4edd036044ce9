"""Offer the streams of rink.streams to Spark as `format("rink")`."""

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
    """Read and write the streams of an app. docs/spark.md has the options."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(...)`."""
        return "rink"

    def schema(self) -> StructType:
        """Return the columns of the stream's record class, or only `value`."""
        created = tables.created_with(self.options)
        options = Options(self.options if created is None else created, of_sink=False)
        metadata = options.flag("metadata", True)
        columns = schemas.columns_of(StreamPlace.of(options).record_class(), metadata=metadata)
        return columns if created is None else tables.with_options(columns, created)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader that reads a stream once."""
        return BatchReader(self._options_of_read(schema), schema)

    def streamReader(  # noqa: N802 - Spark's name
        self, schema: StructType
    ) -> DataSourceStreamReader:
        """Return a reader that reads a stream as a query."""
        return StreamReader(self._options_of_read(schema), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return a writer that writes a DataFrame once."""
        return BatchWriter(self._options_of_write(), schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Return a writer that writes the batches of a query."""
        return StreamWriter(self._options_of_write(), schema, overwrite=overwrite)

    def _options_of_read(self, schema: StructType) -> Options:
        return Options(tables.options_of_read(self.options, schema), of_sink=False)

    def _options_of_write(self) -> Options:
        return Options(tables.options_of_write(self.options), of_sink=True)
