"""Mend asyncio for Runnel; import this module first.

asyncio dropped `loop=` in Python 3.10, and aredis still passes it.
"""

from __future__ import annotations

import asyncio
import asyncio.tasks
import functools
from collections.abc import Callable
from typing import Any


def without_loop(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any, loop: Any = None, **more: Any) -> Any:
        return function(*arguments, **more)

    return call


for name in ("gather", "open_connection", "open_unix_connection", "sleep", "wait", "wait_for"):
    setattr(asyncio, name, without_loop(getattr(asyncio, name)))
asyncio.tasks.gather = asyncio.gather  # anyio takes it from here
