"""Write the log on a thread of its own.

Perhaps nobody reads stderr: a pipe that is full, a terminal that was stopped by Ctrl-S. A line that
the event loop or a thread of the member writes there itself would never end. Then the lease would
live on, and signals would reach nobody.
"""

from __future__ import annotations

import contextlib
import logging
import queue
from logging.handlers import QueueHandler, QueueListener

MAX_LINES = 1_000
"""Lines that wait for a reader. Later lines are lost."""

LAST_LINES_S = 0.1
"""Time for the last lines at the end of the process."""


class LogThread(QueueHandler):
    """Pass lines to a thread that writes them to stderr; never wait for it."""

    def __init__(self) -> None:
        self._lines: queue.Queue[logging.LogRecord] = queue.Queue(MAX_LINES)
        super().__init__(self._lines)
        QueueListener(self._lines, logging.StreamHandler()).start()

    def enqueue(self, record: logging.LogRecord) -> None:
        """Pass a line on, or lose it."""
        with contextlib.suppress(queue.Full):
            self._lines.put_nowait(record)

    def flush(self) -> None:
        """Wait a moment until all lines are written."""
        lines = self._lines
        with lines.all_tasks_done:
            lines.all_tasks_done.wait_for(lambda: not lines.unfinished_tasks, LAST_LINES_S)
