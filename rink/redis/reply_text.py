"""Turn replies of Redis into text, where they are no records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rink.errors import ConfigError


def refuse_decoding(settings: Mapping[str, Any]) -> None:
    """Refuse the settings of a client that decodes replies to text.

    Raises:
        ConfigError: they have `decode_responses=True`.
    """
    if settings.get("decode_responses"):
        raise ConfigError(
            "the Redis client has decode_responses=True: records are bytes, so make it without"
        )


def text(reply: Any) -> str:
    """Return a value of a reply as text; "" for None.

    Bytes that are not UTF-8 become the replacement character.
    """
    if isinstance(reply, bytes):
        return reply.decode(errors="replace")
    return "" if reply is None else str(reply)
