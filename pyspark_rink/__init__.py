"""Let Spark find `format("rink")` by itself.

Spark looks for modules named pyspark_…, and takes the DefaultSource of each. If an import fails,
Spark says DATA_SOURCE_NOT_FOUND, without a reason. So if Rink cannot be imported, this source
exists all the same and says why.
"""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rink.spark.datasource import RinkDataSource as DefaultSource
else:
    try:
        from rink.spark.datasource import RinkDataSource as DefaultSource
    except ImportError as error:
        try:
            from pyspark.sql.datasource import DataSource
        except ImportError:  # this PySpark has no data sources at all
            raise error from None
        _why = str(error)

        class DefaultSource(DataSource):
            """Stand in for the source of a Rink that cannot be imported."""

            def __init__(self, options: Any) -> None:  # noqa: ARG002 - Spark's signature
                raise ImportError(
                    f'format("rink") cannot be imported by {sys.executable}: {_why}. Install '
                    "etcd-rink[spark] there, and any other missing package"
                )

            @classmethod
            def name(cls) -> str:
                """Return the name that Spark looks for."""
                return "rink"


__all__ = ["DefaultSource"]
