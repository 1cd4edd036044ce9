"""Save CPU time by private parts of gRPC and redis-py.

Each function here changes or reads a private part of a library. So each has three things:

* a range of known versions: it leaves objects of other versions as they are;
* a check of the object itself, so a missing part changes nothing;
* a test in tests/test_tuning.py, which fails if a new version ignores the change.

Without these functions, Rink works as well, only slower. Raise a range after a run of that test.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import threading
from functools import cache
from typing import Any

VERSIONS = {"grpcio": ((1, 62), (2,)), "redis": ((6,), (9,))}
"""Map each library to its first known version, and its first unknown version."""

MIN_READER_WAIT_S = 2.0
"""Shortest wait of a gRPC reader. With fork support, gRPC waits at most 5 s for it to wake."""


@cache
def is_known(library: str) -> bool:
    """Return whether this module knows the installed version of a library."""
    first, unknown = VERSIONS[library]
    parts = importlib.metadata.version(library).split(".")[:2]
    version = tuple(int(part) for part in parts if part.isdigit())
    return first <= version < unknown


class _Unhurried(threading.Condition):
    """Wait for at least `MIN_READER_WAIT_S` if a timeout is given."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(timeout if timeout is None else max(timeout, MIN_READER_WAIT_S))


def unhurried(call: Any) -> Any:
    """Wake the reader of a gRPC stream only by answers, and return the call.

    gRPC also wakes the reader ten times a second, so that signal handlers can run. They run on the
    main thread, which reads no stream of Rink's. This polling was 2/5 of an idle member's CPU time.
    """
    condition = getattr(getattr(call, "_state", None), "condition", None)
    if is_known("grpcio") and type(condition) is threading.Condition:
        with contextlib.suppress(TypeError):
            condition.__class__ = _Unhurried
    return call


def pack_in_c(pool: Any) -> None:
    """Make the new connections of an asyncio pool pack requests in C.

    redis-py packs in C in its blocking client, but in Python in its asyncio client. Rink's requests
    are many and short, so packing them took a tenth of a worker's CPU time. Packed in C, the call
    of a script takes 3 µs instead of 17, and a read of 64 partitions 21 µs instead of 164 (redis-py
    8.1, hiredis 3.4). hiredis knows only UTF-8.
    """
    connection_class: Any = getattr(pool, "connection_class", None)
    is_there = importlib.util.find_spec("hiredis") is not None
    if not (is_there and is_known("redis") and hasattr(connection_class, "pack_command")):
        return
    is_utf8 = pool.connection_kwargs.get("encoding", "utf-8").lower() in ("utf-8", "utf8")
    if is_utf8 and not issubclass(connection_class, _PacksInC):
        bases = (_PacksInC, connection_class)
        pool.connection_class = type(connection_class.__name__, bases, {})


class _PacksInC:
    """Mix hiredis packing into any connection class of redis-py."""

    def pack_command(self, *args: Any) -> list[bytes]:
        import hiredis

        if isinstance(args[0], str) and " " not in args[0]:
            with contextlib.suppress(TypeError):
                return [hiredis.pack_command(args)]
        # A command of two words, or an argument that redis-py must convert to bytes first.
        packed: list[bytes] = super().pack_command(*args)  # type: ignore[misc]
        return packed


def writers_of(*pools: Any) -> list[Any]:
    """Return the asyncio writers of the connections of pools or cluster nodes.

    redis-py has no name for them, and forgets them when it closes the connections. Without them,
    a connection whose server is silent stays open until the operating system ends it.
    """
    if not is_known("redis"):
        return []
    lists = ("_connections", "_available_connections", "_in_use_connections")
    connections = [each for pool in pools for name in lists for each in getattr(pool, name, ())]
    writers = [getattr(connection, "_writer", None) for connection in connections]
    return [writer for writer in writers if writer is not None]
