"""Who is calling: which task or thread, a signal handler amid another call, an event loop."""

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
"""What calls the first function of a thread, and of a task."""


def owns(lock: threading.RLock) -> Callable[[], bool]:
    """Return a function that says whether its thread holds the lock."""
    return lock._is_owned  # type: ignore[attr-defined,no-any-return]  # noqa: SLF001


def made_at() -> CodePlace:
    """Return where user code calls from: the first frame outside of Rink.

    A thread or a task of Rink's own has none there: then its outermost frame in Rink.
    """
    inside: FrameType = sys._getframe(1)  # noqa: SLF001 - the cheap way, and documented
    outside = inside.f_back
    while outside is not None and outside.f_code.co_filename.startswith(_PACKAGE):
        inside, outside = outside, outside.f_back
    is_ours = outside is None or outside.f_code.co_filename in _RUNNERS
    frame = inside if is_ours or outside is None else outside
    return frame.f_code, frame.f_lasti


def caller() -> object:
    """Return who calls: the asyncio task where there is one, else the thread."""
    try:
        return asyncio.current_task() or threading.get_ident()
    except RuntimeError:
        return threading.get_ident()


def caller_id() -> int:
    """Return a number for who calls.

    It keeps neither a task nor its frames alive.
    """
    who = caller()
    return who if isinstance(who, int) else id(who)


class _Warned:
    once = False


def warn_in_event_loop(what: str) -> None:
    """Warn once per process of a blocking call in an event loop."""
    if _Warned.once or not (library := loop_library()):
        return
    _Warned.once = True
    advice = (
        "rink.aio has the same interface for asyncio"
        if library == "asyncio"
        else "make it in a thread (trio.to_thread.run_sync, say)"
    )
    warnings.warn(
        f"{what} blocks the running {library} loop (the lease is kept all the same); {advice}",
        RuntimeWarning,
        stacklevel=4,
    )
