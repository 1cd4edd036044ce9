"""Decide when a member follows a newer version.

It follows at once, or when the members that are new in that version have claimed their shares.

A holder of roles that a version gives to a newcomer keeps them while the newcomer writes its claim,
and loses them when it sees the claim. So nobody holds the roles for the time of one write, the
holder's own. That time does not include the newcomer's write, nor any wait for a newcomer that is
slow or frozen.

No rule of safety depends on this. To others, a member that waits here looks as if its watch were
late. Its record claims the roles by the version before, until it follows. It grants nothing
meanwhile, since R2 demands the newest version of the view.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import attrs

from rink.core.effects import Level
from rink.core.member_record import Share
from rink.core.outbox import Outbox
from rink.core.placement import Placement
from rink.core.values import Member, Version
from rink.core.view import View, shares_of

CLAIM_TIMEOUT_S = 1.0
"""Longest wait for a newcomer's claim: half of the shortest TTL.

A member that offers its rank waits until its offer ends, if that is later.
"""

GATHER_TIMEOUT_S = 0.001
"""Longest wait, before the record is written, for handles that are released at once (R3)."""


@attrs.define
class Following:
    """Keep which version a member follows, and the shares of the newest one.

    `newest` is the newest version that can be read, and `owned` is each member's share of it.
    `version` is the followed version, and `share` is this member's share of it. If the versions
    differ, `awaits` names the newcomer for which the older version is kept, at most until `until`.
    """

    newest: Version | None = None
    owned: dict[str, Share] = attrs.field(factory=dict)
    version: Version | None = None
    awaits: str = ""
    until: float = math.inf
    share: Share | None = None

    def follow(
        self,
        view: View,
        name: str,
        held: Iterable[str],
        placement: Placement,
        offer_until: float,
        now: float,
        out: Outbox,
    ) -> bool:
        """Follow the newest version, once newcomers have claimed their roles.

        A member that offers its rank waits for them until `offer_until`, because a newcomer may be
        dead, and then nobody would have the roles. Return True if a new version is followed.
        """
        # Invariant: `share` is this member's share of `version`, and both change together, here at
        # the end only. `newest` and `owned` run ahead while a newcomer is awaited. So the record
        # claims the older share until the roles that it covers are lost by the newer one.
        newest, version = view.newest, view.version
        if newest is not None and newest.version is None:
            return False  # hold what is held, grant nothing (R4)
        if version is not self.newest:
            self.newest = version
            self.owned = shares_of(version, placement.rank) if version else {}
        if version is not self.version:
            newcomer = _awaited(view, self.version, self.owned, held, placement)
            if newcomer:
                if self._waits(newcomer, offer_until, now, out):
                    return False
                late = f"{newcomer!r}, which is new to the ranks, has not claimed its share in time"
                until = (
                    f"nobody has the roles of {newcomer!r} until it claims them or its lease ends"
                )
                out.report(Level.WARNING, f"member {name!r} gives up roles, but {late}: {until}")
        self.awaits, self.until = "", math.inf
        is_new, self.version = version is not self.version, version
        self.share = self.owned.get(name)
        return is_new

    def _waits(self, newcomer: str, offer_until: float, now: float, out: Outbox) -> bool:
        """Return whether to wait for a newcomer now, and schedule the next look."""
        if now >= self.until:
            return False
        self.awaits = f"{newcomer}, which is new to the ranks, has not claimed its share yet"
        self.until = min(self.until, max(now + CLAIM_TIMEOUT_S, offer_until))
        out.wake(self.until)
        return True


def _awaited(
    view: View,
    followed: Version | None,
    owned: Mapping[str, Share],
    held: Iterable[str],
    placement: Placement,
) -> str:
    """Return a newcomer that has yet to claim a role held here, or "".

    A member that is ranked in the `followed` version is no newcomer. `owned` has every member's
    share of the newest version. `held` are the roles that this member holds.
    """
    ranked = frozenset(followed.ranks if followed else ())
    for name, share in owned.items():
        if name in ranked or _has_claimed(view.members.get(name), share):
            continue
        if any(placement.has(share, role) for role in held):
            return name
    return ""


def _has_claimed(member: Member | None, share: Share) -> bool:
    if member is None or not member.lease:
        return False  # it is gone already: most likely the next version gives its roles back
    # A record that cannot be read claims everything.
    return member.record is None or member.record.shares[:1] == (share,)
