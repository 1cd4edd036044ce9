"""Asking Redis again for what passes by itself, and saying now and then that one waits, and on what."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from rink.core.reports import REPORT_EVERY_S
from rink.etcd.backoff import Backoff
from rink.streams.errors import PartitionFull, RedisOutOfMemory, RedisUnavailable

T = TypeVar("T")
log = logging.getLogger("rink.streams")

_PASSES = (RedisUnavailable, RedisOutOfMemory, PartitionFull)
"""What is asked again: none of it is an event's fault."""


class Patience:
    """The pauses between tries of one thing.

    Args:
        what: waits, for the log: a partition's role, or what is done.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._pauses = Backoff(0.02, 1.0)
        self._said = time.monotonic()

    def after(self, error: Exception, *, at_once: bool = False) -> float:
        """Return the seconds to wait after a try that failed; tell of it every ten, or at once."""
        if at_once or time.monotonic() - self._said > REPORT_EVERY_S:
            self._said = time.monotonic()
            log.warning("%s waits: %s", self._what, error)
        return self._pauses.next()

    def reset(self) -> None:
        """One has succeeded: begin with short pauses again."""
        self._pauses.reset()


async def insist(what: str, ask: Callable[[], Awaitable[T]]) -> T:
    """Ask Redis until it answers; what passes by itself is waited for, and said now and then.

    Args:
        what: waits, for the log.
        ask: sends the request, which may be sent again.
    """
    patience: Patience | None = None  # hardly ever needed
    while True:
        try:
            return await ask()
        except _PASSES as error:
            patience = patience or Patience(what)
            await asyncio.sleep(patience.after(error))
