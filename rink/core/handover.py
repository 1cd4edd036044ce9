"""When a newer version is followed: at once, or when who is new to it has claimed its share.

Whoever holds roles that a version gives away goes on serving while a newcomer writes its claim, and
loses them when that is seen. So what nobody holds waits for one write, the last holder's, and no
longer for two, nor for a newcomer that is slow or frozen.

No rule of safety rests on it. To everybody else a member that waits here is one whose watch is late:
its record claims what it held by the version before, until it follows. It grants nothing meanwhile,
since R2 asks for the newest version of the view.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import attrs

from rink.core.outbox import Outbox
from rink.core.placement import Placement
from rink.core.values import Member, Share, Version
from rink.core.view import View

CLAIMS_WITHIN_S = 1.0
"""How long a newcomer is waited for: half of the shortest TTL."""

GATHER_S = 0.001
"""How long holders that let go at once are waited for before the record is written (R3)."""


@attrs.define
class HandOver:
    """Until when a newcomer is waited for; `because` says so to people, empty for none."""

    because: str = ""
    until: float = math.inf

    def waits(self, newcomer: str, now: float, out: Outbox) -> bool:
        """Whether to wait for one now; `until` is noted as a time to look again."""
        if now >= self.until:
            return False
        self.because = f"{newcomer}, which is new to the ranks, has not claimed its share yet"
        self.until = min(self.until, now + CLAIMS_WITHIN_S)
        out.wake(self.until)
        return True

    def over(self) -> None:
        """The newest version is followed: nobody is waited for."""
        self.because, self.until = "", math.inf


def awaited(
    view: View,
    followed: Version | None,
    owned: Mapping[str, Share],
    held: Iterable[str],
    placement: Placement,
) -> str:
    """Return a newcomer that is to have what is held here and has not claimed it, or an empty string.

    Args:
        view: what lies in etcd.
        followed: the version that is lived by; who is ranked there is no newcomer.
        owned: every member's share of the newest version.
        held: the roles that are held here, placed by that version.
        placement: where roles are.
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
        return False  # it died so early: most likely the next version gives all of it back
    return member.record is None or member.record.shares[:1] == (share,)  # unread, it claims all
