"""Write the log on a separate thread.

A write to stderr blocks if the pipe has no reader, or if Ctrl-S stopped the terminal. On the event
loop or a thread of the member, signals would then have no effect, but the lease would stay alive.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import select
import time
from logging.handlers import QueueHandler, QueueListener

MAX_LINES = 1_000
"""The maximum number of waiting lines. Further lines are lost."""

LOOK_INTERVAL_S = 0.1
LAST_LINES_TIMEOUT_S = 2.0
"""Time for the last lines at the end of the process, if they are read."""


class LogThread(QueueHandler):
    """Pass lines to a thread that writes them to stderr, without waiting."""

    def __init__(self) -> None:
        self._lines: queue.Queue[logging.LogRecord] = queue.Queue(MAX_LINES)
        super().__init__(self._lines)
        QueueListener(self._lines, logging.StreamHandler()).start()

    def enqueue(self, record: logging.LogRecord) -> None:
        """Queue a line, or drop it if the queue is full."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(record)

    def flush(self) -> None:
        """Wait until all lines are written, or stderr takes no line."""
        lines, end = self._lines, time.monotonic() + LAST_LINES_TIMEOUT_S
        with lines.all_tasks_done:
            while lines.unfinished_tasks and time.monotonic() < end:
                lines.all_tasks_done.wait(LOOK_INTERVAL_S)
                if not _can_write():
                    return


def _can_write() -> bool:
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poll.poll(0))
