"""Which versions of etcd break what Rink stands on, by etcd's own change logs.

Rink counts on no lease ending before its time, on a watch telling every change, and on the servers
of a cluster holding the same data. Where one of these fails two members may hold one role, and the
fencing token is what is left. So whoever runs such a version should hear of it, and Rink goes on.
"""

from __future__ import annotations

import re

_DIFFER = "its servers may come to hold different data"
_EARLY = "a former leader may end leases that are alive"
_COMPACTED = "a watch may miss changes around a compaction"
_RENEWED = "a lease that has just ended may be answered as renewed"

# For each line of releases, what is mended from which patch on.
_MENDED: dict[tuple[int, int], tuple[tuple[int, str], ...]] = {
    (3, 4): ((22, _DIFFER), (31, _EARLY), (36, _COMPACTED), (38, _RENEWED)),
    (3, 5): ((6, _DIFFER), (13, _EARLY), (18, _COMPACTED), (23, _RENEWED)),
    (3, 6): ((5, _RENEWED),),
}
_OLDEST = min(_MENDED)


def advice(version: str) -> str | None:
    """Return the advice for a version of etcd, or None.

    Args:
        version: as `Client.version` gives it, such as `3.5.1`.
    """
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        return None
    major, minor, patch = map(int, found.groups())
    if (major, minor) < _OLDEST:
        return f"etcd {version} is too old for Rink: use 3.5 or later"
    faults = [(at, fault) for at, fault in _MENDED.get((major, minor), ()) if patch < at]
    if not faults:
        return None
    last = max(at for at, _ in faults)
    return (
        f"etcd {version} has known faults that can break a promise of Rink's: "
        f"{'; '.join(fault for _, fault in faults)}. "
        f"Upgrade to {major}.{minor}.{last} or later; until then check the fencing token"
    )
