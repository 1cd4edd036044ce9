"""How long to wait before the next try."""

from __future__ import annotations

import tenacity


class Backoff:
    """Pauses that double, each drawn at random up to its bound, so that clients spread out.

    Args:
        first: bound of the first pause, in seconds.
        longest: bound of every pause, in seconds.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._wait = tenacity.wait_random_exponential(multiplier=first, max=longest)
        self._state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})

    def reset(self) -> None:
        """Begin again with the first pause."""
        self._state.attempt_number = 1

    @property
    def is_fresh(self) -> bool:
        """Return whether no pause was taken since the beginning."""
        return self._state.attempt_number == 1

    def next(self) -> float:
        """Return the seconds to wait now."""
        seconds = self._wait(self._state)
        self._state.attempt_number += 1
        return seconds
