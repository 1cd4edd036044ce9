"""Compute how long a server may be silent until another one is tried."""

from __future__ import annotations

ANSWER_TIMEOUT_S = 1.5
"""Timeout for the answer to a request for a sign of life."""


class AnswerTimeout:
    """Adapt a timeout to the time of the last answer.

    The timeout is twice that time, between two bounds, and each silence doubles it. A frozen or
    unreachable server must be left soon. But a fixed timeout could be shorter than every answer
    takes, if etcd is slow or this process hardly runs. Then every call would be given up and
    repeated for ever, which adds load. The first timeout is the lower bound.
    """

    def __init__(self, shortest: float, longest: float) -> None:
        self.seconds = shortest
        self._took = 0.0
        self.bound(shortest, longest)

    def bound(self, shortest: float, longest: float) -> None:
        """Set the bounds for the next answer or silence, and all later ones."""
        self._shortest, self._longest = shortest, longest

    def answered(self, took: float) -> None:
        """Note that a server answered on the stream after `took` seconds."""
        self._took = took
        self.seconds = min(max(2 * took, self._shortest), self._longest)

    @property
    def when_asked(self) -> float:
        """Return the timeout after another stream waited in vain, in seconds."""
        return max(2 * self._took, ANSWER_TIMEOUT_S)

    def was_in_vain(self) -> None:
        """Note that a server was silent for the whole timeout."""
        self.seconds = min(2 * self.seconds, self._longest)
