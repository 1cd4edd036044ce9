"""Accept writes only from the newest fencing token, and each part once.

    guard = RedisGuard("redis://…")
    guard.raise_fence(Fence.of(role))           # before anything is written under this token
    guard.begin(fence, batch)                   # before each batch
    part = guard.part(fence, batch, 3)          # for each part of it, anywhere
    with part as step:
        if step is not None:                    # None: this part was written before
            step.hincrby("carriers", "AA", 17)
    guard.finish(fence, batch, [part.result, …])

Nothing here depends on Spark. Each guard is imported with its libraries at its first use, so
`import rink.guards` imports neither redis nor SQLAlchemy nor pyarrow. See docs/guards.md.
"""

from typing import TYPE_CHECKING

from rink._lazy import named
from rink.guards.errors import GuardError
from rink.guards.guard import Guard, Part
from rink.guards.values import Batch, Fence

if TYPE_CHECKING:
    from rink.guards.parquet import ParquetGuard, PartFile
    from rink.guards.redis import RedisGuard
    from rink.guards.sql import SqlGuard
else:
    __getattr__, __dir__ = named(
        __name__,
        {
            "ParquetGuard": "rink.guards.parquet",
            "PartFile": "rink.guards.parquet",
            "RedisGuard": "rink.guards.redis",
            "SqlGuard": "rink.guards.sql",
        },
        extra={
            "rink.guards.parquet": "spark",
            "rink.guards.redis": "streams",
            "rink.guards.sql": "sql",
        },
    )

__all__ = [
    "Batch", "Fence", "Guard", "GuardError", "ParquetGuard", "Part", "PartFile", "RedisGuard",
    "SqlGuard",
]  # fmt: skip
