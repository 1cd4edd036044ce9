"""Turn replies of Redis into text."""

from __future__ import annotations

from typing import Any


def text(reply: Any) -> str:
    """Return a value of a reply as text; "" for None.

    Bytes that are not UTF-8 become the replacement character.
    """
    if isinstance(reply, bytes):
        return reply.decode(errors="replace")
    return "" if reply is None else str(reply)
