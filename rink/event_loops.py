"""Which library's event loop runs here, and the refusal of any but asyncio's."""

from __future__ import annotations

import asyncio
import sys

from rink.errors import UsageError


def loop_library() -> str:
    """Return which library's event loop runs the caller, or "".

    It is a name such as "asyncio". sniffio comes first: trio as a guest of asyncio runs its tasks
    inside asyncio's loop. It is not imported for this. Whoever uses trio has imported it.
    """
    sniffio = sys.modules.get("sniffio")
    if sniffio is not None:
        try:
            return str(sniffio.current_async_library())
        except sniffio.AsyncLibraryNotFoundError:
            pass  # it may be a callback of asyncio's loop: sniffio knows only tasks
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ""
    return "asyncio"


def asyncio_loop(
    package: str = "rink.aio", blocking: str = "the blocking rink.Rink"
) -> asyncio.AbstractEventLoop:
    """Return the running loop of asyncio.

    Args:
        package: what needs the loop, for the message.
        blocking: what can be used without a loop, for the message.

    Raises:
        UsageError: there is none; the message says what runs instead, and what to write.
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
        "(trio.to_thread.run_sync, say), or run this part under asyncio"
    )
