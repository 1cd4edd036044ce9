"""Read the clock that a sidecar and its consumers share.

`CLOCK_BOOTTIME` counts from the start of the machine, also while it is suspended. Every language
reads it by `clock_gettime`, and a shell in `/proc/uptime`. The member's deadline has this clock.
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
