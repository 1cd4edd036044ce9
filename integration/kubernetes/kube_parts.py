"""Run the parts of `make k8s` that are no rows of its table."""

from __future__ import annotations

from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class PartVerdict:
    """Hold what came of a part.

    Attributes:
        name: the part's.
        says: what was tried, and what it came to, in a sentence.
        figures: the same as JSON holds it.
        misses: what is not as it should be, in words.
        seconds: how long the part took.
    """

    name: str
    says: str
    figures: dict[str, Any]
    misses: tuple[str, ...]
    seconds: float
