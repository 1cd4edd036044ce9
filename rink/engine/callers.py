"""Who is calling: which task or thread, a signal handler amid another call, an event loop."""

from __future__ import annotations

import asyncio
import threading
import warnings
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


class _Warned:
    once = False


def warn_in_event_loop(what: str) -> None:
    """Warn once per process that a blocking call is made where an event loop runs."""
    if _Warned.once:
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    _Warned.once = True
    warnings.warn(
        f"{what} blocks the running event loop (the lease is kept all the same); rink.aio has the "
        "same interface for asyncio",
        RuntimeWarning,
        stacklevel=4,
    )
