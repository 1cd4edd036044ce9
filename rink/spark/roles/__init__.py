"""Which rank and which member each of millions of roles has, computed on Spark.

`assign` adds the columns, `moves` finds the roles that another version gives to another member,
`balance` and `plan` count; `standing` reads from etcd how a group is now, which they take as well.
All of them give the very owners that members of the group compute.

Needs the extra `spark`. On a cluster `rink` must be importable by the executors' Python (NumPy and
PyArrow too): what is shipped to them names it and holds the version's ranks, nothing else. PySpark
is imported by the functions, so that `hashing` can be had without.
"""

from rink.spark.roles.assign import assign, moves
from rink.spark.roles.group_now import standing
from rink.spark.roles.plans import Flow, Load, Plan, balance, plan
from rink.spark.roles.version_ranks import Ranked, Standing, after

__all__ = [
    "Flow", "Load", "Plan", "Ranked", "Standing", "after", "assign", "balance", "moves", "plan", "standing",
]  # fmt: skip
