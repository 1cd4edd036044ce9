"""Define how long to keep events that every processor has passed."""

from __future__ import annotations

import math
import re
from datetime import timedelta

import attrs

from rink.arguments import check_count, check_seconds
from rink.errors import ConfigError

Keep = str | float | timedelta
"""A duration: `"7d"`, `"12h"`, `"30m"`, `"90s"`, a timedelta, or seconds; 0 for none."""

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_NAMES = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000))


@attrs.frozen
class Retention:
    """Hold the time and bytes for which a partition keeps passed events.

    Without both, events are removed as soon as all processors have passed them.

    Attributes:
        ms: milliseconds by the clock of Redis; 0 for no limit.
        size: bytes in each partition; 0 for no limit.
    """

    ms: int = 0
    size: int = 0

    def __bool__(self) -> bool:
        return self.ms > 0 or self.size > 0

    def __str__(self) -> str:
        parts = [_shown(self.ms)] * (self.ms > 0) + [f"{self.size:,} bytes"] * (self.size > 0)
        return " or ".join(parts) or "no time"


def check_retention(keep: Keep | None, keep_bytes: int | None) -> Retention | None:
    """Return the retention of a stream; None if neither value is given."""
    if keep is None and keep_bytes is None:
        return None
    ms = 0 if keep is None else math.ceil(_seconds(keep) * 1000)
    return Retention(
        ms, 0 if keep_bytes is None else check_count("keep_bytes", keep_bytes, least=0)
    )


def _seconds(keep: object) -> float:
    if isinstance(keep, timedelta):
        return check_seconds("keep", keep.total_seconds())
    if not isinstance(keep, str):
        return check_seconds("keep", keep)
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([smhdw])", keep, re.ASCII)
    if match is None:
        raise ConfigError(
            f"keep={keep!r} is no duration: give a number with s, m, h, d or w, such as "
            '"7d", a timedelta, or a number of seconds'
        )
    return float(match[1]) * _SECONDS[match[2]]


def _shown(ms: int) -> str:
    """Return a duration in the largest unit that divides it."""
    for name, unit_ms in _NAMES:
        if ms % unit_ms == 0:
            return f"{ms // unit_ms} {name}"
    return f"{ms} ms"
