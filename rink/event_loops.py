"""Find the library of the running event loop, and require asyncio's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import UTC, datetime

from rink.errors import UsageError


def loop_library() -> str:
    """Return the library of the event loop that runs the caller, or "".

    It is a name such as "asyncio". This asks sniffio first, since trio as a guest of asyncio runs
    its tasks inside asyncio's loop. It does not import sniffio, since trio has done that.
    """
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        try:
            return str(sniffio.current_async_library())
        except sniffio.AsyncLibraryNotFoundError:
            pass  # it may be a callback of asyncio's loop, since sniffio knows only tasks
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ""
    return "asyncio"


def loop_time() -> float:
    """Return the seconds by the clock of the running event loop.

    `rink.redis` and `rink.streams` wait by no other clock, except for the dates of cron tasks
    (`wall_now`). In tests, `rink.testing.virtual_loop` has the engines' virtual time.
    """
    return asyncio.get_running_loop().time()


def wall_now() -> datetime:
    """Return the date and time in UTC.

    They are virtual if the running event loop has virtual time. Without a loop this fails.
    """
    of_loop: Callable[[], datetime] | None
    of_loop = getattr(asyncio.get_running_loop(), "wall_now", None)
    return datetime.now(UTC) if of_loop is None else of_loop()


def asyncio_loop(
    package: str = "rink.aio", blocking: str = "the blocking rink.Rink"
) -> asyncio.AbstractEventLoop:
    """Return the running loop of asyncio.

    Raises:
        UsageError: no loop of asyncio runs. The message says what runs, that `package` needs the
            loop, and that `blocking` needs none.
    """
    library = loop_library()
    if library == "asyncio":
        return asyncio.get_running_loop()
    if not library:
        raise UsageError(
            f"{package} needs asyncio, and no event loop of asyncio runs here: await this in "
            f"asyncio.run(), or use {blocking}"
        )
    raise UsageError(
        f"{package} needs asyncio, but {library} runs here: use {blocking} in a thread "
        "(with trio.to_thread.run_sync, for example), or run this part under asyncio"
    )
