"""The steps of all engines of one process take turns."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

LONGEST_TURN_S = 0.1
"""How long an engine waits for its turn; beside a TTL of 2 s, the shortest."""


class Turns:
    """Whose turn it is.

    Side by side the steps of many engines take longer in all, as the interpreter runs one thread at a
    time; and what comes while an engine waits for its turn is one step's work instead of many. It is
    a courtesy and guards nothing, so nobody waits for long: whose turn it is may wait for its own lock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def begin_anew(self) -> None:
        """In a forked child: a thread that is not there may have taken its turn."""
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn, or for `LONGEST_TURN_S`."""
        lock = self._lock
        is_mine = lock.acquire(timeout=LONGEST_TURN_S)
        try:
            yield
        finally:
            if is_mine:
                lock.release()
