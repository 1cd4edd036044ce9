"""The steps of all engines of one process take turns."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator

TURN_TIMEOUT_S = 0.1
"""How long an engine waits while nobody's turn ends; beside a TTL of 2 s, the shortest."""


class StepQueue:
    """Whose turn it is, first come, first served.

    Side by side the steps of many engines take longer in all, as the interpreter runs one thread at
    a time; and what comes while an engine waits for its turn is one step's work instead of many. It
    is a courtesy and guards nothing: whose turn it is may wait for its own lock, and then the
    others go on without. As long as turns end they wait, since those that do not are in each
    other's way, the more the more there are: with 75 engines in a process none of them came to an
    end.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin anew in a forked child.

        A thread that is not in the child may have taken its turn.
        """
        self.is_taken = False
        self._ended_turns = 0
        self._queue: collections.deque[threading.Lock] = collections.deque()
        self._lock = threading.Lock()  # of all these

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn, or until none has ended for `TURN_TIMEOUT_S`."""
        is_mine = self._take()
        try:
            yield
        finally:
            if is_mine:
                self._end()

    def _take(self) -> bool:
        with self._lock:
            if not self.is_taken:
                self.is_taken = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self._queue.append(mine)
            seen = self._ended_turns
        while not mine.acquire(timeout=TURN_TIMEOUT_S):
            with self._lock:
                if mine not in self._queue:
                    return True  # handed over just now
                if seen == self._ended_turns:
                    self._queue.remove(mine)
                    return False
                seen = self._ended_turns
        return True

    def _end(self) -> None:
        with self._lock:
            self._ended_turns += 1
            self.is_taken = bool(self._queue)
            if self._queue:
                self._queue.popleft().release()
