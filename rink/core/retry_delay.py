"""Compute the delay before the next try: exponential, with jitter."""

from __future__ import annotations

from rink.core.hashing import fnv1a64

MIN_DELAY_S = 0.05
MAX_DELAY_S = 2.0


def backoff(failures: int, name: str, longest_s: float = MAX_DELAY_S) -> float:
    """Return the delay in seconds after so many failures in a row.

    `failures` is 1 or more, and the delay at most `longest_s`. Members of a group must not retry in
    step, and a pure core has no random numbers. So the jitter, up to half of the delay, comes from
    a hash of `name`, the name of the waiting member.
    """
    delay = min(longest_s, MIN_DELAY_S * 2.0 ** min(failures - 1, 16))
    return delay * (0.5 + (fnv1a64(f"{name}/{failures}") % 1024) / 2048)
