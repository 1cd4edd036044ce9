"""Write the log on a thread of its own.

A write to stderr blocks if nobody reads the pipe, or if Ctrl-S stopped the terminal. On the event
loop or a thread of the member, that would leave signals without effect, but the lease alive.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import select
import time
from logging.handlers import QueueHandler, QueueListener

MAX_LINES = 1_000
"""Most lines that wait for a reader. Later lines are lost."""

LOOK_INTERVAL_S = 0.1
LAST_LINES_TIMEOUT_S = 2.0
"""Time for the last lines at the end of the process, if they are read."""


class LogThread(QueueHandler):
    """Pass lines to a thread that writes them to stderr; never wait for it."""

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
