"""Asking Redis again for what passes by itself, and saying now and then that one waits, and on what."""

from __future__ import annotations

import logging
import time

from rink.etcd.backoff import Backoff

log = logging.getLogger("rink.streams")

REPORT_EVERY_S = 10.0


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
            log.warning("rink.streams: %s waits: %s", self._what, error)
        return self._pauses.next()

    def reset(self) -> None:
        """One has succeeded: begin with short pauses again."""
        self._pauses.reset()
