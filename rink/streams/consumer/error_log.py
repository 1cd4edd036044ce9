"""Log each error once with its traceback, then the number of repeats.

This also logs the end of an outage.
"""

from __future__ import annotations

import asyncio
import logging

import attrs

from rink.event_loops import loop_time
from rink.plural import plural
from rink.report_interval import REPORT_INTERVAL_S
from rink.streams.failure_policy import said

log = logging.getLogger("rink.streams")

_FIRST_SUMMARY_S = 1.0
"""The time from the traceback to the first summary.

The other partitions meet the same error in this time.
"""
_FORGET_AFTER_S = 300.0
"""The time after which the same error is logged with its traceback again."""

ErrorKind = tuple[type[BaseException], str, int]
"""The identity of an error: its class, and the file and line that raised it."""


@attrs.define(eq=False)
class _Seen:
    last: float
    places: set[str] = attrs.field(factory=set)
    count: int = 0
    latest: str = ""
    timer: asyncio.TimerHandle | None = None


class ErrorLog:
    """Collect the errors of one processor in all partitions of a worker."""

    def __init__(self, processor: str) -> None:
        self._processor = processor
        self._seen: dict[ErrorKind, _Seen] = {}
        # The partitions in an outage, with the number of events that each had done before it.
        self._waiting: dict[str, int] = {}
        self._outage_since = 0.0

    def log(
        self,
        error: BaseException,
        role: str,
        event: str = "",
        then: str = "",
        level: int = logging.WARNING,
    ) -> None:
        """Log an error, or count it if it was logged shortly before.

        Args:
            error: the processor's error.
            role: the role of the partition.
            event: the id of the event to blame; "" for none.
            then: the consequence, for the log.
            level: the level of the line with the traceback.
        """
        loop = asyncio.get_running_loop()
        kind, now = _kind(error), loop.time()
        self._forget(now)
        where = f"{role} at event {event}" if event else role
        seen = self._seen.get(kind)
        if seen is None:
            self._seen[kind] = _Seen(now)
            log.log(
                level, "processor %r failed in %s: %s%s", self._processor, where, said(error),
                f": {then}" if then else "", exc_info=error,
            )  # fmt: skip
            return
        wait = _FIRST_SUMMARY_S if not seen.latest else REPORT_INTERVAL_S
        seen.last, seen.count = now, seen.count + 1
        seen.latest = f"{where}: {type(error).__name__}: {said(error)}"
        seen.places.add(role)
        if seen.timer is None:
            seen.timer = loop.call_later(wait, self._sum_up, seen)

    # ── outages ──────────────────────────────────────────────────────────────────────────────
    # An outage lasts from the first partition that waits for a transient error to pass, to the
    # last partition that has an event done again.

    def note_wait(self, role: str, finished: int) -> None:
        """Note that a partition waits, with `finished` events done before."""
        if not self._waiting:
            self._outage_since = loop_time()
        self._waiting[role] = finished

    def note_finished(self, role: str, finished: int) -> None:
        """Log the end of an outage after each partition has an event done."""
        if self._waiting.get(role, finished) >= finished:
            return
        del self._waiting[role]
        seconds = loop_time() - self._outage_since
        if not self._waiting and seconds >= REPORT_INTERVAL_S:
            log.warning(
                "processor %r continues in all its partitions, after %.0f s of transient errors",
                self._processor, seconds,
            )  # fmt: skip

    def note_end(self, role: str) -> None:
        """Note that the partition goes to another owner."""
        self._waiting.pop(role, None)

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Log the errors that were counted and not logged yet."""
        for seen in self._seen.values():
            if seen.timer is not None:
                self._sum_up(seen)
        self._seen.clear()

    def _sum_up(self, seen: _Seen) -> None:
        if seen.timer is not None:
            seen.timer.cancel()
        count, partitions = seen.count, len(seen.places)
        log.warning(
            "processor %r failed %d more %s with the same error, in %d %s, the last time in %s",
            self._processor, count, plural(count, "time"), partitions,
            plural(partitions, "partition"), seen.latest,
        )  # fmt: skip
        seen.timer, seen.count = None, 0
        seen.places.clear()

    def _forget(self, now: float) -> None:
        for kind, seen in list(self._seen.items()):
            if seen.timer is None and now - seen.last > _FORGET_AFTER_S:
                del self._seen[kind]


def _kind(error: BaseException) -> ErrorKind:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error), "", 0
    return type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno
