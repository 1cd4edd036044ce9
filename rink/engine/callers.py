"""Who is calling: which task or thread, and whether a signal handler amid a call of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable


def owns(lock: threading.RLock) -> Callable[[], bool]:
    """Return a function that tells whether the very thread it is called on holds the lock."""
    return lock._is_owned  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001


def caller() -> object:
    """Return who calls: the asyncio task where there is one, else the thread."""
    try:
        return asyncio.current_task() or threading.get_ident()
    except RuntimeError:
        return threading.get_ident()
