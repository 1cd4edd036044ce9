"""Compute from the notes of members for how long nobody held a role."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any


def gaps_of(stamps: Iterable[Any]) -> tuple[list[float], float]:
    """Return the gap of each role that moved, and the span of all gaps.

    Both are in seconds. A gap lasts from a `let go` to the next `gained` of the same role. The span
    lasts from the first `let go` to the last `gained`.

    Args:
        stamps: the notes of all members, in any order: when, `let go` or `gained`, and the role.

    Raises:
        RuntimeError: a role had no owner in the end, or two owners at once.
    """
    free: defaultdict[str, list[float]] = defaultdict(list)
    gaps: list[tuple[float, float]] = []
    # At equal times a `let go` comes first. So a gap of zero counts as a gap, not as two owners.
    for at, what, role in sorted(stamps, key=lambda one: (one[0], one[1] != "let go")):
        if what == "let go":
            free[role].append(at)
        elif free[role]:
            gaps.append((free[role].pop(), at))
    # An owner that gained a role too early leaves a `let go` of the previous owner without a pair.
    unpaired = sorted(role for role, times in free.items() if times)
    if unpaired:
        raise RuntimeError(f"no owner in the end, or two at once: {', '.join(unpaired[:5])}")
    first = min((begin for begin, _ in gaps), default=0.0)
    last = max((end for _, end in gaps), default=0.0)
    return [end - begin for begin, end in gaps], last - first
