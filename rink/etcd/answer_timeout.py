"""How long a server may be silent until another one is tried."""

from __future__ import annotations

ANSWER_WITHIN_S = 1.5
"""A server that is asked for a sign of life answers within this time."""


class AnswerTimeout:
    """Twice what the last answer took, between two bounds; each silence doubles it.

    A server that is frozen, or cut off, must be left soon. But who never waits for longer than the
    answers take gets none at all: with a slow etcd, or in a process that hardly gets to run, every
    call would be given up and made again for ever, and that is load too.

    Args:
        shortest: its lower bound in seconds, and what it begins with.
        longest: its upper bound in seconds.
    """

    def __init__(self, shortest: float, longest: float) -> None:
        self.seconds = shortest
        self._took = 0.0
        self.bound(shortest, longest)

    def bound(self, shortest: float, longest: float) -> None:
        """Set the bounds that hold from the next answer, or silence, on."""
        self._shortest, self._longest = shortest, longest

    def answered(self, took: float) -> None:
        """Note that a server answered on the stream, after so many seconds."""
        self._took = took
        self.seconds = min(max(2 * took, self._shortest), self._longest)

    @property
    def when_asked(self) -> float:
        """Return the seconds for an answer where another stream waited in vain."""
        return max(2 * self._took, ANSWER_WITHIN_S)

    def was_in_vain(self) -> None:
        """Note that a server was silent for that long."""
        self.seconds = min(2 * self.seconds, self._longest)
