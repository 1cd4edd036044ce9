"""List etcd versions that break Rink's assumptions, by their change logs.

Rink assumes that no lease ends early, that a watch delivers every change, that answered writes are
kept, and that the servers of a cluster have the same data. If one of these fails, two members may
hold one role, and only the fencing token protects the data. So Rink warns of such a version, and
goes on. `rink dev` warns once by itself. Its clients know it by the name of its only member.
"""

from __future__ import annotations

import re

_LOST = "a server that is alone may lose writes that it answered, if it crashes"
_DIFFER = "its servers may have different data"
_EARLY = "a former leader may end live leases"
_COMPACTED = "a watch may miss changes around a compaction"
_RENEWED = "a lease that has just ended may be answered as renewed"

# For each line of releases, each fault, and the patch that fixed it.
FIXED: dict[tuple[int, int], tuple[tuple[int, str], ...]] = {
    (3, 4): ((21, _LOST), (22, _DIFFER), (31, _EARLY), (36, _COMPACTED), (38, _RENEWED)),
    (3, 5): ((5, _LOST), (6, _DIFFER), (13, _EARLY), (18, _COMPACTED), (23, _RENEWED)),
    (3, 6): ((5, _RENEWED),),
}
_OLDEST = min(FIXED)

DEV_NAME = "rink-dev"
"""The member name of the etcd that `rink dev` runs."""

PAGE = "docs/failure-modes.md#releases-of-etcd"


def advice(version: str) -> str | None:
    """Return the advice for a version of etcd such as `3.5.1`, or None."""
    line, faults = _faults(version)
    if line and line < _OLDEST:
        return f"etcd {version} is too old for Rink: use 3.5 or later"
    if not faults:
        return None
    listed = "; ".join(f"{fault} (fixed in {_release(line, at)})" for at, fault in faults)
    return (
        f"etcd {version} has known faults, by which two members may hold one role at once: "
        f"{listed}. Upgrade to {fixed_in(version)} or later. Until then only the fencing token "
        f"guards against that; see {PAGE}"
    )


def fixed_in(version: str) -> str:
    """Return the first release without a version's known faults, or ""."""
    line, faults = _faults(version)
    if line and line < _OLDEST:
        return "3.5"
    return _release(line, max(at for at, _ in faults)) if faults else ""


def _faults(version: str) -> tuple[tuple[int, ...], list[tuple[int, str]]]:
    """Return a version's line of releases, and its faults with their fixes."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None:
        return (), []
    major, minor, patch = map(int, match.groups())
    fixed = FIXED.get((major, minor), ())
    return (major, minor), [(at, fault) for at, fault in fixed if patch < at]


def _release(line: tuple[int, ...], patch: int) -> str:
    return ".".join(map(str, (*line, patch)))
