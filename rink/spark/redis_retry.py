"""Repeat requests of the source and the sink while Redis is unavailable."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from rink.backoff import repeat_for
from rink.redis.errors import RedisUnavailable

T = TypeVar("T")

FIRST_PAUSE_S, MAX_PAUSE_S = 0.1, 2.0
"""Bounds of the first pause and of every pause, in seconds."""


def repeat_while_unavailable(timeout_s: float, request: Callable[[], T]) -> T:
    """Repeat a request; after `timeout_s`, raise its last error."""
    return repeat_for(
        timeout_s, request, RedisUnavailable, first=FIRST_PAUSE_S, longest=MAX_PAUSE_S
    )
