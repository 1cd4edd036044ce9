"""Derive the claims that this member's record states (R3)."""

from __future__ import annotations

from collections.abc import Iterable

from rink.core.holds import Hold
from rink.core.member_record import Share
from rink.core.placement import Placement


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
