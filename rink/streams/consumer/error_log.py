"""Logs each error with its traceback once, then how often it came.

It also logs when an outage is over.
"""

from __future__ import annotations

import asyncio
import logging

import attrs

from rink.report_interval import REPORT_INTERVAL_S
from rink.streams.failure_policy import said

log = logging.getLogger("rink.streams")

_FIRST_SUMMARY_S = 1.0
"""Seconds after the traceback: until then the other partitions have met the same error."""
_FORGOTTEN_AFTER_S = 300.0
"""An error that was not seen for so long is logged with its traceback again."""

Kind = tuple[type[BaseException], str, int]
"""What makes two errors the same: their class, and the file and line that raised them."""


@attrs.define(eq=False)
class _Seen:
    last: float
    places: set[str] = attrs.field(factory=set)
    count: int = 0
    latest: str = ""
    timer: asyncio.TimerHandle | None = None


class Complaints:
    """Collects the errors of one processor in all partitions of a worker.

    Args:
        processor: its name.
    """

    def __init__(self, processor: str) -> None:
        self._processor = processor
        self._seen: dict[Kind, _Seen] = {}
        self._waiting: dict[str, int] = {}  # partitions in an outage: events finished before it
        self._outage_since = 0.0

    def tell(
        self,
        error: BaseException,
        role: str,
        event: str = "",
        then: str = "",
        level: int = logging.WARNING,
    ) -> None:
        """Log an error, or count it where the same one was logged shortly before.

        Args:
            error: what the processor raised.
            role: in which partition.
            event: the id of the event to blame; "" for none.
            then: what follows.
            level: of the line with the traceback.
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

    # ── outages: transient errors, from the first partition that waits to the last one that goes on ──

    def note_wait(self, role: str, finished: int) -> None:
        """Note that a partition waits for a transient error to pass.

        Args:
            role: which partition.
            finished: how many events its owner has finished by now.
        """
        if not self._waiting:
            self._outage_since = asyncio.get_running_loop().time()
        self._waiting[role] = finished

    def note_finished(self, role: str, finished: int) -> None:
        """Log the end of an outage once each partition has finished an event."""
        if self._waiting.get(role, finished) >= finished:
            return
        del self._waiting[role]
        seconds = asyncio.get_running_loop().time() - self._outage_since
        if not self._waiting and seconds >= REPORT_INTERVAL_S:
            log.warning(
                "processor %r goes on in all its partitions: it had waited for transient errors to pass for %.0f s",
                self._processor, seconds,
            )  # fmt: skip

    def note_end(self, role: str) -> None:
        """Note that another owner waits for the partition from here on."""
        self._waiting.pop(role, None)

    # ── the end ──────────────────────────────────────────────────────────────────────────────

    def close(self) -> None:
        """Log what was counted and not logged yet."""
        for seen in self._seen.values():
            if seen.timer is not None:
                self._sum_up(seen)
        self._seen.clear()

    def _sum_up(self, seen: _Seen) -> None:
        if seen.timer is not None:
            seen.timer.cancel()
        count, partitions = seen.count, len(seen.places)
        log.warning(
            "processor %r failed %d more time%s with the same error, in %d partition%s, at last in %s",
            self._processor, count, "s" * (count != 1), partitions, "s" * (partitions != 1), seen.latest,
        )  # fmt: skip
        seen.timer, seen.count = None, 0
        seen.places.clear()

    def _forget(self, now: float) -> None:
        for kind, seen in list(self._seen.items()):
            if seen.timer is None and now - seen.last > _FORGOTTEN_AFTER_S:
                del self._seen[kind]


def _kind(error: BaseException) -> Kind:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error), "", 0
    return type(error), trace.tb_frame.f_code.co_filename, trace.tb_lineno
