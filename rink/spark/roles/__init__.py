"""Compute the rank and the member of each of millions of roles on Spark.

The owners are exactly those that members of the group compute. On a cluster, the executors'
Python must be able to import `rink`, NumPy and PyArrow: a function that goes there names `rink` and
holds the version's ranks, nothing else. Only functions import PySpark, so that `rank_arrays` works
without it.
"""

from rink.spark.roles.assign import assign, moves
from rink.spark.roles.group_now import standing
from rink.spark.roles.plans import Flow, Load, Plan, balance, plan
from rink.spark.roles.version_ranks import Ranked, Standing, after

__all__ = [
    "Flow", "Load", "Plan", "Ranked", "Standing",
    "after", "assign", "balance", "moves", "plan", "standing",
]  # fmt: skip
