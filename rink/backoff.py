"""Compute pauses between tries by tenacity: they double, with jitter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import tenacity

T = TypeVar("T")


class Backoff:
    """Give pauses whose bound doubles, from `first` to `longest` seconds.

    Each pause is drawn at random up to its bound, so that clients spread out.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._wait = tenacity.wait_random_exponential(multiplier=first, max=longest)
        self._state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})

    def reset(self) -> None:
        """Begin again with the first pause."""
        self._state.attempt_number = 1

    @property
    def is_fresh(self) -> bool:
        """Return whether no pause was taken since the last reset."""
        return self._state.attempt_number == 1

    def next(self) -> float:
        """Return the seconds to wait now."""
        seconds = self._wait(self._state)
        self._state.attempt_number += 1
        return seconds


def repeat_for(
    timeout_s: float,
    call: Callable[[], T],
    passing: type[Exception],
    *,
    first: float,
    longest: float,
) -> T:
    """Repeat a blocking call until it succeeds, and return its result.

    Args:
        timeout_s: time after which no try begins, and the last error is raised.
        call: the call; it must be safe to repeat.
        passing: the type of the errors after which the call is repeated.
        first: bound of the first pause, as for `Backoff`.
        longest: bound of every pause.
    """
    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(passing),
        stop=tenacity.stop_after_delay(timeout_s),
        wait=tenacity.wait_random_exponential(multiplier=first, max=longest),
        reraise=True,
    )
    return retrying(call)
