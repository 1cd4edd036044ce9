"""Compute the ranks and members of millions of roles on Spark.

The owners are the same as the members of the group compute. On a cluster, the executors' Python
must be able to import `rink`, NumPy and PyArrow, because the functions that run there use them.
PySpark is imported only inside functions, so that `rank_arrays` works without it.
"""

from rink.spark.roles.assign import assign, moves
from rink.spark.roles.group_now import standing
from rink.spark.roles.plans import Flow, Load, Plan, balance, plan
from rink.spark.roles.version_ranks import Ranked, Standing, after

__all__ = [
    "Flow", "Load", "Plan", "Ranked", "Standing",
    "after", "assign", "balance", "moves", "plan", "standing",
]  # fmt: skip
