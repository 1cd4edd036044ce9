"""Find the claims of other members, and gate every grant by them (R2).

The rules that hold in this file:

* A record claims a role if the role lies in one of its shares or in its draining list. A record
  that cannot be read, or a share whose scheme cannot be computed here, claims everything. A record
  without a lease claims nothing.
* A `Gate` is everything about one view that a grant depends on, frozen. A new one is published
  whenever the view, the record or the session changes, and by the first step after a scheme was
  registered. So a caller may compute on a gate without a lock. Under the lock it only checks that
  its gate is still the published one.

Deliberately absent: the session's deadline and unreleased handles. They change without a new view,
so `Table.take` checks them under the lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property

import attrs

from rink.core.member_record import Share
from rink.core.placement import Placement
from rink.core.record_index import BY_AGE
from rink.core.values import Member


@attrs.frozen
class Obstacles:
    """Hold the claims of others that the newest version does not rule out.

    Invariant: a role of this member's share that no claim here covers is claimed by nobody else. A
    claim that is left out is the claimant's own share of the newest version, and two shares of one
    version never meet. So in a settled group there are no such claims.
    """

    draining: Mapping[str, str] = attrs.field(factory=dict)
    shares: tuple[tuple[str, Share], ...] = ()
    everything: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        unsettled: Mapping[str, Member],
        me: str,
        owned: Mapping[str, Share],
        placement: Placement,
    ) -> Obstacles:
        """Collect the claims of the members other than `me`.

        `owned` has every member's share of the newest version. Each record in `unsettled`
        differs from its member's share.
        """
        draining: dict[str, str] = {}
        shares: list[tuple[str, Share]] = []
        everything: list[tuple[str, str]] = []
        for member in sorted(unsettled.values(), key=BY_AGE):
            if member.name == me:
                continue
            if member.record is None:
                everything.append((member.name, f"its record {member.problem}"))
                continue
            draining.update(dict.fromkeys(member.record.draining, member.name))
            for share in member.record.shares:
                if share == owned.get(member.name):
                    continue
                if placement.can_follow(share.scheme):
                    shares.append((member.name, share))
                else:
                    reason = f"it claims by scheme {share.scheme!r}, which is not known here"
                    everything.append((member.name, reason))
        return cls(draining, tuple(shares), tuple(everything))

    def to(self, role: str, placement: Placement) -> str:
        """Return the member that keeps a role from this one, and why, or ""."""
        for name, reason in self.everything:
            return f"{name}: {reason}"
        if role in self.draining:
            return f"{self.draining[role]}: has not released it yet"
        for name, share in self.shares:
            rank = placement.rank(role, share.scheme, share.size)
            if share.has(role, rank) or rank is None:
                return f"{name}: still claims it, as rank {share.rank} of {share.size}"
        return ""


# With slots, attrs makes its own cached properties: those of Python 3.11 take a lock.
@attrs.frozen(eq=False)
class Gate:
    """Hold everything of one view that a grant depends on.

    A gate without a share lets nothing through. Each grant through a gate has its fencing token
    `token` (R5). `schemes` is the number of schemes that were known here, because a claim by an
    unknown scheme blocks every role.
    """

    share: Share | None
    find_obstacles: Callable[[], Obstacles]
    token: int
    version: int
    closed_because: str
    ranks: Mapping[str, int | None]
    schemes: int = 0

    @cached_property
    def obstacles(self) -> Obstacles:
        """Return the claims of others, computed on demand: few gates need them.

        Two threads may compute them at once, with the same result.
        """
        return self.find_obstacles()

    def is_mine(self, role: str, placement: Placement) -> bool:
        """Return whether the role lies in the share.

        This may call the scheme, so hold no lock.
        """
        share = self.share
        if share is None:
            return False
        rank = self.ranks.get(role)  # most ranks are known, and this call is cheap
        if rank is None:
            rank = placement.rank(role, share.scheme, share.size)
        return share.has(role, rank)

    def is_anothers(self, role: str, placement: Placement) -> bool:
        """Return whether the role lies in another member's share.

        Return False, too, if the rank is unknown. This may call the scheme, so hold no lock.
        """
        share = self.share
        if share is None:
            return False
        rank = placement.rank(role, share.scheme, share.size)
        return rank is not None and not share.has(role, rank)

    def obstacle(self, role: str, placement: Placement) -> str:
        """Return why a role of the share cannot be granted now, or ""."""
        return self.closed_because or self.obstacles.to(role, placement)


def closed(because: str) -> Gate:
    """Return a gate that lets nothing through."""
    return Gate(None, Obstacles, 0, 0, because, {})
