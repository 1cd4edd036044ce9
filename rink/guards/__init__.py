"""Guards: writes are accepted from the newest fencing token alone, and each part of each batch once.

    guard = RedisGuard("redis://…")
    guard.raise_fence(Fence.of(role))           # before anything is written under this token
    guard.begin(fence, batch)                   # before each batch
    part = guard.part(fence, batch, 3)          # for each part of it, anywhere
    with part as step:
        if step is not None:                    # None: this part was written before
            step.hincrby("carriers", "AA", 17)
    guard.finish(fence, batch, [part.result, …])

Nothing here knows of Spark. Each guard is imported with what it needs once it is asked for, so `import rink.guards`
brings neither redis nor SQLAlchemy nor pyarrow. See docs/guards.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rink.guards.errors import GuardError
from rink.guards.guard import Guard, Part
from rink.guards.values import Batch, Fence

if TYPE_CHECKING:
    from rink.guards.parquet import ParquetGuard, PartFile
    from rink.guards.redis import RedisGuard
    from rink.guards.sql import SqlGuard

__all__ = [
    "Batch", "Fence", "Guard", "GuardError", "ParquetGuard", "Part", "PartFile", "RedisGuard",
    "SqlGuard",
]  # fmt: skip

_LAZY = {
    "ParquetGuard": ("rink.guards.parquet", "pyarrow: pip install 'rink[spark]'"),
    "PartFile": ("rink.guards.parquet", "pyarrow: pip install 'rink[spark]'"),
    "RedisGuard": ("rink.guards.redis", "redis: pip install 'rink[streams]'"),
    "SqlGuard": ("rink.guards.sql", "SQLAlchemy: pip install 'rink[sql]'"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, needs = _LAZY[name]
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("rink"):
            raise
        raise ImportError(f"rink.guards.{name} needs {needs} ({error})", name=error.name) from error


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
