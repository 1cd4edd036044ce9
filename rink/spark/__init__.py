"""The data pipeline on Spark: streams as tables, jobs as roles, fenced output, role maps at scale.

    spark.readStream.format("rink")     the streams of rink.streams: see docs/spark.md for its options
    JobRunner(spark, r)                 jobs and streaming queries, run by who holds their roles
    fenced(foreach_batch, guard, role)  what foreachBatch writes, refused from a driver that lost its role
    rink.spark.roles                    roles to ranks and members, by the hundred million

It needs PySpark (`etcd-rink[spark]`). Each name is imported when it is asked for: executors start
processes often, and need little.
"""

from typing import TYPE_CHECKING

from rink._lazy import named
from rink.spark.installed import check_pyspark

check_pyspark()

if TYPE_CHECKING:
    from rink.spark.batches import FencedBatch, FencedStream, fence, fenced
    from rink.spark.datasource import RinkDataSource
    from rink.spark.group_history import GroupHistory, history
    from rink.spark.jobs.driver_exit import SparkStopped
    from rink.spark.jobs.job import Job, JobState
    from rink.spark.jobs.runner import JobRunner
else:
    __getattr__, __dir__ = named(
        __name__,
        {
            "FencedBatch": "rink.spark.batches",
            "FencedStream": "rink.spark.batches",
            "GroupHistory": "rink.spark.group_history",
            "Job": "rink.spark.jobs.job",
            "JobRunner": "rink.spark.jobs.runner",
            "RinkDataSource": "rink.spark.datasource",
            "SparkStopped": "rink.spark.jobs.driver_exit",
            "JobState": "rink.spark.jobs.job",
            "fence": "rink.spark.batches",
            "fenced": "rink.spark.batches",
            "history": "rink.spark.group_history",
        },
        extra="spark",
    )

__all__ = [
    "FencedBatch",
    "FencedStream",
    "GroupHistory",
    "Job",
    "JobRunner",
    "JobState",
    "RinkDataSource",
    "SparkStopped",
    "fence",
    "fenced",
    "history",
]  # fmt: skip
