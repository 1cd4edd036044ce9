"""Pack requests with hiredis, in C.

redis-py packs in C in its blocking client, but in Python in its asyncio client. Rink's requests
are many and short, so packing them took a tenth of a worker's CPU time. Packed in C, the call of
a script takes 3 µs instead of 17, and a read of 64 partitions 21 µs instead of 164 (redis-py 8.1,
hiredis 3.4).
"""

from __future__ import annotations

import contextlib
from typing import Any

import hiredis
from redis.asyncio import Redis


class _Packs:
    """Mix hiredis packing into any connection class of redis-py."""

    def pack_command(self, *args: Any) -> list[bytes]:
        if isinstance(args[0], str) and " " not in args[0]:
            with contextlib.suppress(TypeError):
                return [hiredis.pack_command(args)]
        # A command of two words, or an argument that redis-py must convert to bytes first.
        packed: list[bytes] = super().pack_command(*args)  # type: ignore[misc]
        return packed


def pack_in_c(redis: Redis) -> None:
    """Make a client's new connections pack in C; hiredis knows only UTF-8."""
    pool = redis.connection_pool
    connection_class = pool.connection_class
    is_utf8 = pool.connection_kwargs.get("encoding", "utf-8").lower() in ("utf-8", "utf8")
    if is_utf8 and not issubclass(connection_class, _Packs):
        bases = (_Packs, connection_class)
        pool.connection_class = type(connection_class.__name__, bases, {})
