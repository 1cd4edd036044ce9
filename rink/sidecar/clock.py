"""Read the clock that a sidecar and its consumers share.

`CLOCK_BOOTTIME` counts from the machine's start, while it is suspended too. Every language reads it
by `clock_gettime`, and a shell in `/proc/uptime`. It is the clock of the member's deadline.
"""

from __future__ import annotations

import math
import time


def now_ms() -> int:
    """Return the time in milliseconds, rounded down."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def in_ms(seconds: float) -> int:
    """Return seconds in whole milliseconds, rounded down."""
    return math.floor(seconds * 1000)
