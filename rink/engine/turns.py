"""The steps of all engines of one process take turns."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

LONGEST_TURN_S = 0.1
"""How long an engine waits while nobody's turn ends; beside a TTL of 2 s, the shortest."""


class Turns:
    """Whose turn it is.

    Side by side the steps of many engines take longer in all, as the interpreter runs one thread at a
    time; and what comes while an engine waits for its turn is one step's work instead of many. It is
    a courtesy and guards nothing: whose turn it is may wait for its own lock, and then the others go on
    without. As long as turns end they wait, since those that do not are in each other's way, the more
    the more there are: with 75 engines in a process none of them came to an end.
    """

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """In a forked child: a thread that is not there may have taken its turn."""
        self._lock = threading.Lock()
        self._ended = 0

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Wait for the turn, or until none has ended for `LONGEST_TURN_S`."""
        lock = self._lock
        seen = self._ended
        while not (is_mine := lock.acquire(timeout=LONGEST_TURN_S)) and seen != self._ended:
            seen = self._ended
        try:
            yield
        finally:
            if is_mine:
                self._ended += 1
                lock.release()
