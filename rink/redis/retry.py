"""Repeat requests to Redis, and log waits and their reasons at intervals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rink.backoff import Backoff
from rink.event_loops import loop_time
from rink.redis.errors import RedisOutOfMemory, RedisUnavailable
from rink.report_interval import REPORT_INTERVAL_S

T = TypeVar("T")
log = logging.getLogger("rink.redis")

PASSING = (RedisUnavailable, RedisOutOfMemory)
"""The errors that end by themselves, so that a request is worth repeating."""

FIRST_PAUSE_S, MAX_PAUSE_S = 0.02, 1.0
"""Bounds of the first pause and of every pause of requests on asyncio, in seconds."""


class RetryPauses:
    """Compute the pauses between the tries of one request.

    The subject of the log lines is `what`, such as the role of a partition.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._pauses = Backoff(FIRST_PAUSE_S, MAX_PAUSE_S)
        self._logged_at = loop_time()

    def after(self, error: Exception, *, at_once: bool = False) -> float:
        """Return the seconds to wait after a failed try.

        A line is logged every ten seconds; `at_once` logs it now.
        """
        if at_once or loop_time() - self._logged_at > REPORT_INTERVAL_S:
            self._logged_at = loop_time()
            log.warning("%s waits: %s", self._what, error)
        return self._pauses.next()

    def reset(self) -> None:
        """Begin with short pauses again, after a success."""
        self._pauses.reset()


async def repeat_until_answered(
    what: str,
    request: Callable[[], Awaitable[T]],
    passing: tuple[type[Exception], ...] = PASSING,
) -> T:
    """Repeat a request until Redis answers, and return the answer.

    The errors in `passing` repeat it. `what` is the subject of the log lines.
    """
    pauses: RetryPauses | None = None  # hardly ever needed
    while True:
        try:
            return await request()
        except passing as error:
            pauses = pauses or RetryPauses(what)
            await asyncio.sleep(pauses.after(error))
