"""What ends the Spark jobs of one role: a tag of their own, on classic Spark and on Connect."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

from rink.core.keys import encode

log = logging.getLogger("rink.spark")
_OURS = "rink-"


class Tag:
    """A tag of the Spark jobs that one grant of a role starts.

    Args:
        spark: the session.
        role: its name.
        token: of the grant: a later one has a tag of its own.
    """

    def __init__(self, spark: SparkSession, role: str, token: int) -> None:
        self.name = f"{_OURS}{encode(role)}-{token}"
        self._spark = spark
        self._context = context_of(spark)

    @contextlib.contextmanager
    def on_this_thread(self) -> Iterator[None]:
        """Have the jobs that this thread starts carry it, and those of InheritableThreads that it
        starts.
        """
        if self._context is None:
            add, remove, has = self._spark.addTag, self._spark.removeTag, self._spark.getTags
        else:
            context = self._context
            add, remove, has = context.addJobTag, context.removeJobTag, context.getJobTags
        # Inherited from the job that started this one, which may lose its role while this one holds
        # its own.
        for other in [tag for tag in has() if tag.startswith(_OURS)]:
            remove(other)
        add(self.name)
        try:
            yield
        finally:
            remove(self.name)

    def cancel(self) -> None:
        """Cancel all jobs that carry it now; those that begin later are not."""
        # On classic Spark interruptTag() was seen to cancel nothing.
        if self._context is None:
            self._spark.interruptTag(self.name)
        else:
            self._context.cancelJobsWithTag(self.name)


def make_active(spark: SparkSession) -> None:
    """Have this thread's session be found by Spark: without one, `writeStream` finds no source made
    in Python.
    """
    if context_of(spark) is not None:
        spark.createDataFrame(
            [], "nothing int"
        )  # it says so as its first step; the method that does only that is private


def context_of(spark: SparkSession) -> Any:
    """Return the SparkContext; None on Spark Connect, which has none."""
    try:
        return spark.sparkContext
    except (PySparkAttributeError, AttributeError):
        return None


def is_gone(spark: SparkSession) -> bool:
    """Return whether no job can run here ever again.

    The JVM is gone, or the SparkContext was stopped. This asks the JVM.
    """
    try:
        spark.sparkContext.defaultParallelism  # noqa: B018 - the smallest question that a stopped context refuses
    except PySparkAttributeError:  # Connect: its server may come again
        return False
    except Exception:  # Py4J's errors have no root but Exception
        return True
    return False


def quietly(call: Any, *given: Any) -> None:
    """Call something of Spark's that ends jobs; where the JVM is gone, so are they."""
    try:
        call(*given)
    except Exception as error:  # Py4J's errors have no root but Exception
        log.warning("%s while jobs were being ended: %s", type(error).__name__, error)
