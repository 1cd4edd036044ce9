"""Run a Spark session in a process, for the parts that measure Spark.

It is no part itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
}


@contextlib.contextmanager
def session(settings: dict[str, str]) -> Iterator[tuple[Any, Any]]:
    """Run a session on all cores; yield it and the process of its JVM.

    Both end with the `with`.
    """
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.pop("SPARK_REMOTE", None)
    every = {**SETTINGS, **settings}
    spark = SparkSession.builder.master("local[*]").config(map=every).getOrCreate()
    gateway = spark.sparkContext._gateway
    try:
        yield spark, gateway.proc
    finally:
        spark.stop()
        gateway.shutdown()  # then wait for its JVM, whose CPU time would count as others'
        gateway.proc.stdin.close()
        gateway.proc.wait()
