"""Provide the features that PySpark 4.0 and 4.1 lack.

All code that depends on the release is here. It looks for features, since platforms backport them.

| feature | since |
|---|---|
| `DataSourceStreamArrowWriter`, `DataFrame.repartitionById`, `arrow_udf` | 4.1 |
| read limits and `Trigger.AvailableNow` of a source in Python | 4.2 |
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it
from pyspark.sql.pandas.types import to_arrow_schema

from rink.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = [
    "DataSourceStreamArrowWriter", "SupportsTriggerAvailableNow", "arrow_function", "arrow_schema",
    "check_read_limit", "repartition_by_id",
]  # fmt: skip

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter

    class DataSourceStreamArrowWriter(  # type: ignore[no-redef,misc]
        DataSourceStreamWriter, DataSourceArrowWriter
    ):
        """Write the batches of a query from Arrow batches.

        Spark 4.0 checks that every writer, even of a query, is a DataSourceArrowWriter.
        """


try:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    HAS_READ_LIMITS = True
except ImportError:
    HAS_READ_LIMITS = False

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Stand in for a class that this release does not have."""


def check_read_limit(most: int | None) -> None:
    """Raise ConfigError for a read limit if this release of Spark has none."""
    if most is not None and not HAS_READ_LIMITS:
        raise ConfigError(
            "the option maxOffsetsPerTrigger needs PySpark 4.2 or later, and this is "
            f"{pyspark.__version__}: leave it out. Then a batch has all events that are there "
            "when it is planned (tasks read them in pages)"
        )


# ── source and role maps ─────────────────────────────────────────────────────────────────────────


def arrow_schema(columns: StructType) -> Any:
    """Return the Arrow schema that Spark expects of a source, in UTC."""
    if "timezone" in inspect.signature(to_arrow_schema).parameters:
        return to_arrow_schema(columns, timezone="UTC")
    return to_arrow_schema(columns)


def arrow_function(compute: Callable[[Any], Any], returns: str) -> Any:
    """Return a user-defined function of a binary column, computed by Python.

    Without `arrow_udf`, the values are converted to pandas Series, which takes longer.

    Args:
        compute: a function from a pyarrow binary Array to an Array of the same length. The result
            is int32, or a struct of int32.
        returns: Spark's name of the new column's type.
    """
    if hasattr(F, "arrow_udf"):

        def by_arrow(data: pa.Array) -> pa.Array:  # Spark reads these types
            return compute(data)

        return F.arrow_udf(by_arrow, returns)
    import pandas as pd

    def by_pandas(data: Any) -> Any:
        return _in_pandas(compute(pa.Array.from_pandas(data, type=pa.binary())))

    by_pandas.__annotations__ = {"data": pd.Series, "return": pd.Series}  # Spark reads these, too
    return F.pandas_udf(by_pandas, returns)  # type: ignore[attr-defined]


def _in_pandas(array: Any) -> Any:
    """Return an Array as a Series, or an Array of structs as a DataFrame."""
    import pandas as pd

    if pa.types.is_struct(array.type):
        names = [field.name for field in array.type]
        return pd.DataFrame({name: _in_pandas(array.field(name)) for name in names})
    return array.to_pandas(types_mapper={pa.int32(): pd.Int32Dtype()}.get)  # nulls stay nulls


# ── fenced batches ───────────────────────────────────────────────────────────────────────────────

_GOES_TO = "__rink_goes_to"
_numbers: dict[int, list[int]] = {}
"""For each count of partitions, a list: the number that Spark's hash sends to each partition."""


def repartition_by_id(df: DataFrame, parts: int, column: str) -> DataFrame:
    """Move each row to the partition whose number is in its column.

    Without `repartitionById`, each row gets a number whose hash leads to its partition. If a
    release hashes differently, rows get into a wrong partition, and `FencedBatch` refuses them.
    """
    if hasattr(df, "repartitionById"):
        return df.repartitionById(parts, column)
    numbers = F.array(*[F.lit(number) for number in _numbers_of(df.sparkSession, parts)])
    return (
        df.withColumn(_GOES_TO, F.get(numbers, column)).repartition(parts, _GOES_TO).drop(_GOES_TO)
    )


def _numbers_of(spark: SparkSession, parts: int) -> list[int]:
    """Ask Spark once which number its hash sends to each partition.

    There are many more numbers than partitions, so that each partition gets one.
    """
    count = 20 * parts + 100
    while parts not in _numbers:
        to = F.pmod(F.hash(F.col("id").cast("int")), F.lit(parts))
        rows = spark.range(count).groupBy(to.alias("to")).agg(F.min("id").alias("id")).collect()
        if len(rows) == parts:
            _numbers[parts] = [number for _, number in sorted(rows)]
        count *= 2
    return _numbers[parts]
