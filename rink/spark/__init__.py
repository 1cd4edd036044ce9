"""The data pipeline on Spark: streams as tables, jobs as roles, fenced output, role maps at scale.

    spark.readStream.format("rink")     the streams of rink.streams: see `RinkDataSource`
    JobRunner(spark, r)                 jobs and streaming queries, run by who holds their roles
    fenced(foreach_batch, guard, role)  what foreachBatch writes, refused from a driver that lost its role
    rink.spark.roles                    roles to ranks and members, by the hundred million

Importing it brings PySpark (`rink[spark]`); nothing else of Rink does.
"""

from rink.spark.datasource import RinkDataSource
from rink.spark.fenced import FencedBatch, FencedStream, fence, fenced
from rink.spark.jobs.job import Job, State
from rink.spark.jobs.runner import JobRunner

__all__ = [
    "FencedBatch",
    "FencedStream",
    "Job",
    "JobRunner",
    "RinkDataSource",
    "State",
    "fence",
    "fenced",
]
