"""Run the data pipeline on Spark: tables, jobs, fences and role maps.

    spark.readStream.format("rink")     the streams of rink.streams; options: docs/spark.md
    JobRunner(spark, r)                 runs jobs and streaming queries where their roles are held
    fenced(foreach_batch, guard, role)  refuses writes of a driver that has lost its role
    rink.spark.roles                    maps hundreds of millions of roles to ranks and members

The package needs PySpark (`etcd-rink[spark]`). Each name is imported at its first use, because
executors start processes often and need few of the names.
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
    "FencedBatch", "FencedStream", "GroupHistory", "Job", "JobRunner", "JobState",
    "RinkDataSource", "SparkStopped", "fence", "fenced", "history",
]  # fmt: skip
