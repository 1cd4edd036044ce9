"""Run the steps of all engines of one process one at a time."""

from __future__ import annotations

import collections
import contextlib
import threading
from collections.abc import Iterator

TURN_TIMEOUT_S = 0.1
"""Longest wait of an engine while no turn ends, in seconds; the shortest TTL is 2 s."""


class StepQueue:
    """Give turns to the engines' steps, first come, first served.

    Steps that run side by side take longer in all, because the interpreter runs one thread at a
    time. And the messages that arrive while an engine waits for its turn need one step instead of
    many.

    The queue protects nothing. An engine that has the turn may wait for its own lock for long, and
    then the others step without a turn. But while turns end, the others wait. Otherwise they would
    slow each other down: with 75 engines in a process, no step ended any more.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all turns in a forked child, where their threads do not exist."""
        self.is_taken = False
        self._ended_turns = 0
        self._queue: collections.deque[threading.Lock] = collections.deque()
        self._lock = threading.Lock()  # guards all of these

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for the turn, or until no turn has ended for `TURN_TIMEOUT_S`."""
        has_turn = self._take()
        try:
            yield
        finally:
            if has_turn:
                self._end()

    def _take(self) -> bool:
        """Wait, and return whether the caller has the turn and must end it."""
        # Invariant: at most one thread has the turn, and only that thread ends it. `_end` hands the
        # turn over under the lock: it removes the first waiter's lock from the queue, releases it,
        # and leaves `is_taken` set. So a waiter whose wait timed out checks the queue under the
        # lock. If its own lock is gone, it was given the turn meanwhile. If its lock is there, it
        # has no turn: it removes the lock, so nobody can give it one later, and returns False.
        with self._lock:
            if not self.is_taken:
                self.is_taken = True
                return True
            mine = threading.Lock()
            mine.acquire()
            self._queue.append(mine)
            ended_turns = self._ended_turns
        while not mine.acquire(timeout=TURN_TIMEOUT_S):
            with self._lock:
                if mine not in self._queue:
                    return True  # `_end` handed the turn over just now
                if ended_turns == self._ended_turns:
                    self._queue.remove(mine)
                    return False
                ended_turns = self._ended_turns
        return True

    def _end(self) -> None:
        with self._lock:
            self._ended_turns += 1
            self.is_taken = bool(self._queue)
            if self._queue:
                self._queue.popleft().release()
