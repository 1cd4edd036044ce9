"""Choose the form of a noun in a message."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """Return the form of a regular noun for a count."""
    return noun if count == 1 else f"{noun}s"
