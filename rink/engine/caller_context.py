"""Find the task, thread, event loop or signal handler that calls."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType

from rink.core.holds import CodePlace
from rink.event_loops import loop_library

_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")  # noqa: PTH118, PTH120
_RUNNERS = (threading.__file__, asyncio.events.__file__)
"""Files whose code calls the first function of a thread, or of a task."""


def owns(lock: threading.RLock) -> Callable[[], bool]:
    """Return a function that returns whether its caller holds the lock."""
    return lock._is_owned  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001


def made_at() -> CodePlace:
    """Return where user code calls from: the first frame outside of Rink.

    In a thread or a task of Rink's own, return the outermost frame in Rink instead.
    """
    inside: FrameType = sys._getframe(1)  # noqa: SLF001 - the cheap way, and documented
    outside = inside.f_back
    while outside is not None and outside.f_code.co_filename.startswith(_PACKAGE):
        inside, outside = outside, outside.f_back
    is_ours = outside is None or outside.f_code.co_filename in _RUNNERS
    frame = inside if is_ours or outside is None else outside
    return frame.f_code, frame.f_lasti


def caller() -> object:
    """Return the asyncio task that calls, or else the id of the thread."""
    try:
        return asyncio.current_task() or threading.get_ident()
    except RuntimeError:
        return threading.get_ident()


def caller_id() -> int:
    """Return a number for the calling task or thread, not a reference."""
    task_or_thread = caller()
    return task_or_thread if isinstance(task_or_thread, int) else id(task_or_thread)


class _LoopWarning:
    once = False


def warn_in_event_loop(what: str) -> None:
    """Warn once per process of a blocking call in an event loop."""
    if _LoopWarning.once or not (library := loop_library()):
        return
    _LoopWarning.once = True
    advice = (
        "rink.aio has the same interface for asyncio"
        if library == "asyncio"
        else "call it in a thread (with trio.to_thread.run_sync, for example)"
    )
    warnings.warn(
        f"{what} blocks the running {library} loop (the lease is still renewed); {advice}",
        RuntimeWarning,
        stacklevel=4,
    )
