"""Let Spark find `format("rink")` by itself.

Spark looks for modules named pyspark_…, and takes the DefaultSource of each. An error at their import ends in
DATA_SOURCE_NOT_FOUND, without a reason. So where Rink cannot be imported, the source is there all the same and says why.
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
        except ImportError:  # no data sources at all: nobody but an import looks here
            raise error from None
        _why = str(error)

        class DefaultSource(DataSource):
            """Stand in for the source of a Rink that cannot be imported."""

            def __init__(self, options: Any) -> None:  # noqa: ARG002 - Spark's signature
                raise ImportError(
                    f'format("rink") cannot be imported by {sys.executable}: {_why}. Install etcd-rink[spark] there, and '
                    "what else is missing"
                )

            @classmethod
            def name(cls) -> str:
                """Return the name that Spark looks for."""
                return "rink"


__all__ = ["DefaultSource"]
