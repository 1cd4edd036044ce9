"""Run a function of a user in a thread of its own, and wait for its end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from rink._cancel import outlast

T = TypeVar("T")


async def outlast_thread(ended: asyncio.Future[T], given_up: asyncio.Event) -> T:
    """Wait for the end of a thread, even if the wait is cancelled.

    After a cancellation, `given_up` also ends the wait. If the thread returns late, its answer
    still counts.
    """
    try:
        await asyncio.wait([ended])
    except asyncio.CancelledError:
        abandoned: asyncio.Future[Any] = asyncio.ensure_future(given_up.wait())
        await outlast([ended, abandoned])
        abandoned.cancel()
        if not ended.done():
            raise
    return ended.result()


async def run_in_thread(function: Callable[[], T], given_up: asyncio.Event) -> T:
    """Run a function in a thread of its own, and wait for its end.

    After a cancellation the wait continues until `given_up` is set. The function must not still run
    when other functions begin.
    """
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def run() -> None:
        try:
            answer = context.run(function)
        except BaseException as raised:
            error = raised if isinstance(raised, Exception) else None
            # SystemExit would end the event loop, and a future refuses StopIteration.
            if error is None or isinstance(error, StopIteration):
                error = RuntimeError(f"{function!r} raised {raised!r}")
                error.__cause__ = raised
            settle = partial(_settle, ended, error=error)
        else:
            settle = partial(_settle, ended, answer)
        with contextlib.suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(settle)

    threading.Thread(target=run, name="rink-hook", daemon=True).start()
    return await outlast_thread(ended, given_up)


def _settle(ended: asyncio.Future[T], answer: Any = None, error: Exception | None = None) -> None:
    if error is None:
        ended.set_result(answer)
    else:
        ended.set_exception(error)
        ended.exception()  # mark it as seen, since nobody may wait for it
