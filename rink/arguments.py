"""Check numbers that users pass, with few imports, for Spark's processes."""

from __future__ import annotations

import math

from rink.errors import ConfigError


def check_seconds(what: str, value: object) -> float:
    """Return a duration in seconds, 0 or more, or raise a ConfigError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ConfigError(f"{what} must be a number of seconds, not {value!r}")
    try:
        seconds = float(value)
    except OverflowError:  # an int of hundreds of digits
        seconds = math.inf
    if not math.isfinite(seconds) or seconds < 0:
        raise ConfigError(f"{what}={seconds!r} must be 0 or more seconds, and finite")
    return seconds


def check_count(what: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """Return a whole number within its bounds, or raise a ConfigError."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{what} must be a whole number, not {value!r}")
    if value < least or (most is not None and value > most):
        raise ConfigError(f"{what}={value} must be {least} {f'to {most}' if most else 'or more'}")
    return value
