"""Tag and cancel the Spark jobs of one role, on classic Spark and Connect."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from pyspark.errors import PySparkAttributeError
from pyspark.sql import SparkSession

from rink.core.keys import encode_name

log = logging.getLogger("rink.spark")
_OURS = "rink-"


class Tag:
    """Tag the Spark jobs that one grant of a role starts."""

    def __init__(self, spark: SparkSession, role: str, token: int) -> None:
        self.name = f"{_OURS}{encode_name(role)}-{token}"
        self._spark = spark
        self._context = context_of(spark)

    @contextlib.contextmanager
    def on_this_thread(self) -> Iterator[None]:
        """Tag the jobs that this thread and its InheritableThreads start."""
        if self._context is None:
            add, remove, has = self._spark.addTag, self._spark.removeTag, self._spark.getTags
        else:
            context = self._context
            add, remove, has = context.addJobTag, context.removeJobTag, context.getJobTags
        # This thread inherits the tags of the job that started this job. The starting job may lose
        # its role while this job holds its own.
        for other in [tag for tag in has() if tag.startswith(_OURS)]:
            remove(other)
        add(self.name)
        try:
            yield
        finally:
            remove(self.name)

    def cancel(self) -> None:
        """Cancel all running jobs with this tag, but none that begin later."""
        # On classic Spark, interruptTag() was seen to cancel nothing.
        if self._context is None:
            self._spark.interruptTag(self.name)
        else:
            self._context.cancelJobsWithTag(self.name)


def make_active(spark: SparkSession) -> None:
    """Make this session the thread's active one, as Python sources need."""
    if context_of(spark) is not None:
        # The first step of this call sets the active session. A method for only that is private.
        spark.createDataFrame([], "nothing int")


def context_of(spark: SparkSession) -> Any:
    """Return the SparkContext, or None on Spark Connect."""
    try:
        return spark.sparkContext
    except (PySparkAttributeError, AttributeError):
        return None


def is_gone(spark: SparkSession) -> bool:
    """Return whether the JVM is gone, or its SparkContext was stopped."""
    try:
        # This is the cheapest call that fails on a stopped context.
        spark.sparkContext.defaultParallelism  # noqa: B018
    except PySparkAttributeError:  # on Connect, the server may come back
        return False
    except Exception:  # Py4J's errors have no root but Exception
        return True
    return False


def quietly(call: Any, *args: Any) -> None:
    """Call a Spark function that ends jobs, and only log an error."""
    try:
        call(*args)
    except Exception as error:  # Py4J's errors have no root but Exception
        log.warning("ending Spark jobs failed, continuing: %s: %s", type(error).__name__, error)
