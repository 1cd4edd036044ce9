"""Check what all demos check, by pure functions."""

import statistics
from collections.abc import Iterable

from common.events import Event


def stale_writes(writes: Iterable[tuple[str, str, int]]) -> list[str]:
    """Return every accepted write with a stale token. Must be empty.

    Args:
        writes: the key that a fence guards, the writer and its token, in the order of writing.
    """
    highest: dict[str, int] = {}
    found = []
    for key, writer, token in writes:
        before = highest.get(key, token)
        if token < before:
            found.append(f"{key}: {writer} wrote with {token} after {before}")
        highest[key] = max(token, before)
    return found


def differences(got: dict, expected: dict) -> list[str]:
    """Return every key whose value is not the expected one. Must be empty."""
    return [
        f"{key}: {got.get(key)}, expected {expected.get(key)}"
        for key in sorted(got.keys() | expected.keys())
        if got.get(key) != expected.get(key)
    ]


def repeated(times: dict[str, int]) -> list[str]:
    """Return every write that was accepted more than once. Must be empty."""
    return [f"{write}: {count} times" for write, count in times.items() if count > 1]


def warnings(history: Iterable[Event]) -> list[str]:
    """Return the warnings that processes noted."""
    return [f"{one['member']}: {one['why']}" for one in history if one["what"] == "warned"]


def summary(seconds: list[float]) -> dict[str, float]:
    """Return the count, the median and the maximum, in milliseconds."""
    return {
        "count": len(seconds),
        "p50_ms": round(statistics.median(seconds) * 1000, 1),
        "max_ms": round(max(seconds) * 1000, 1),
    }
