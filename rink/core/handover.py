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
from collections.abc import Mapping

import attrs

from rink.core.outbox import Outbox
from rink.core.values import Share, Version
from rink.core.view import View

CLAIMS_WITHIN_S = 1.0
"""How long a newcomer is waited for: half of the shortest TTL."""


@attrs.define
class HandOver:
    """Who is waited for and until when; `because` says so to people, and is empty for nobody."""

    because: str = ""
    until: float = math.inf

    def waits(
        self,
        view: View,
        followed: Version | None,
        owned: Mapping[str, Share],
        now: float,
        out: Outbox,
    ) -> bool:
        """Whether to follow the newest version of a view later, by `until` at the latest.

        Args:
            view: what lies in etcd.
            followed: the version that is lived by.
            owned: every member's share of the newest version.
            now: the time.
            out: takes `until`.
        """
        name = _newcomer(view, followed, owned)
        if name is None or now >= self.until:
            return False
        self.because = f"{name}, which is new to the newest version, has not claimed its share yet"
        self.until = min(self.until, now + CLAIMS_WITHIN_S)
        out.wake(self.until)
        return True

    def over(self) -> None:
        """Nobody is waited for: the newest version is followed, or cannot be read."""
        self.because, self.until = "", math.inf


def _newcomer(view: View, followed: Version | None, owned: Mapping[str, Share]) -> str | None:
    """Return somebody who is ranked now, was not, and does not claim its share yet."""
    ranked = followed.ranks if followed else ()
    for name, share in owned.items():
        if name in ranked:
            continue
        member = view.members.get(name)
        if member is None or not member.lease:
            return name  # it died so early, and most likely the next version gives all of it back
        if member.record and member.record.shares[:1] != (share,):  # unread, it claims everything
            return name
    return None
