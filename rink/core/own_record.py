"""Derive the claims of this member's record, and describe records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rink.core.holds import Hold
from rink.core.placement import Placement
from rink.core.values import Member, Share

MAX_NAMED = 5
"""How many names of a list are written out in a sentence."""


def claims_of(
    share: Share | None, draining: Iterable[Hold], placement: Placement, limit_bytes: int
) -> tuple[tuple[Share, ...], tuple[str, ...]]:
    """Return shares and draining names that claim each unreleased role (R3).

    Roles that the newest share does not cover are listed by name. If the names would take more than
    `limit_bytes`, the shares that these roles were lost from follow the newest share instead.
    """
    outside = [hold for hold in draining if not placement.has(share, hold.role)]
    newest = () if share is None else (share,)
    if sum([len(hold.role.encode()) + 3 for hold in outside]) <= limit_bytes:
        return newest, tuple(sorted([hold.role for hold in outside]))
    first: dict[Share, tuple[int, str]] = {}  # orders the shares by their newest grants
    for hold in outside:
        at = (-hold.version, hold.role)
        first[hold.share] = min(at, first.get(hold.share, at))
    older = sorted(first, key=first.__getitem__)
    return newest + tuple(older), ()


def describe(member: Member) -> str:
    """Return a description of a record for a message."""
    if member.record is None:
        return f"the record members/{member.name} (lease {member.lease:x}, {member.problem})"
    since = f" joined {member.record.joined}" if member.record.joined else ""
    where = f" at {member.record.address}" if member.record.address else ""
    which = f"incarnation {member.record.incarnation[:8]}, lease {member.lease:x}"
    return f"the record members/{member.name} ({which}{since}{where})"


def some(names: Sequence[str], between: str = ", ") -> str:
    """Return the first few names for a message, and the number of the rest."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return between.join(names[:MAX_NAMED]) + more
