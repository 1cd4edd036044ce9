"""The data pipeline on Spark: streams as tables, jobs as roles, fenced output, role maps at scale.

    spark.readStream.format("rink")     the streams of rink.streams: see docs/spark.md for its options
    JobRunner(spark, r)                 jobs and streaming queries, run by who holds their roles
    fenced(foreach_batch, guard, role)  what foreachBatch writes, refused from a driver that lost its role
    rink.spark.roles                    roles to ranks and members, by the hundred million

It needs PySpark (`rink[spark]`). What is asked for is imported then: executors, which start processes often, need little.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rink.spark.batches import FencedBatch, FencedStream, fence, fenced
    from rink.spark.datasource import RinkDataSource
    from rink.spark.jobs.job import Job, State
    from rink.spark.jobs.runner import JobRunner, SparkStopped
    from rink.spark.past import History, history

__all__ = [
    "FencedBatch", "FencedStream", "History", "Job", "JobRunner", "RinkDataSource", "SparkStopped", "State", "fence", "fenced", "history",
]  # fmt: skip

_HOMES = {
    "RinkDataSource": "datasource",
    "FencedBatch": "batches",
    "FencedStream": "batches",
    "fence": "batches",
    "fenced": "batches",
    "Job": "jobs.job",
    "State": "jobs.job",
    "JobRunner": "jobs.runner",
    "SparkStopped": "jobs.runner",
    "History": "past",
    "history": "past",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("rink"):
            raise
        raise ImportError(
            f"rink.spark.{name} needs {error.name}: pip install 'rink[spark]'", name=error.name
        ) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
