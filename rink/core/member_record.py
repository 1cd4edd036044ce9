"""Define the record of a member, which is the value of its key.

`rink.core.codec` turns it into JSON and back.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from rink.core.schemes import MAX_SIZE


class Phase(enum.Enum):
    """Name the phases of a member, as its record states them.

    A member that leaves is `OFFERING` first, for its `handover_wait`. It serves, and its rank goes
    to a waiting member. Then it is `LEAVING`, and the group may shrink without it.
    """

    ACTIVE = "active"
    OFFERING = "offering"
    LEAVING = "leaving"


@attrs.frozen
class Share:
    """Hold the roles of one ranked member in one version, in short form.

    A role is in the share if it is in `gained`, that is, pinned to this member. It is also in the
    share if the scheme maps it to `rank` of `size`, unless it is in `taken`, that is, pinned to
    another member.
    """

    rank: int
    size: int = attrs.field()
    scheme: str
    gained: frozenset[str] = frozenset()
    taken: frozenset[str] = frozenset()

    @size.validator
    def _check(self, _: object, size: int) -> None:
        if not 0 <= self.rank < size <= MAX_SIZE:
            raise ValueError(f"rank {self.rank} of {size} is no rank")

    def has(self, role: str, rank: int | None) -> bool:
        """Return whether this share has the role, which the scheme maps to `rank`."""
        return role in self.gained or (rank == self.rank and role not in self.taken)


@attrs.frozen
class MemberRecord:
    """Hold the content of a member's key, which only that member writes (R1).

    `leads_by` has the settings that count only while the member coordinates. They are in the
    record for people: differences between members show before one of them coordinates.
    """

    incarnation: str
    ttl: int
    phase: Phase = Phase.ACTIVE
    rebalance_delay: float = 60.0
    version: int = 0
    shares: tuple[Share, ...] = ()
    draining: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ("jump",)
    address: str = ""
    labels: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    joined: str = ""
    leads_by: Mapping[str, float | None] = attrs.field(factory=dict, hash=False)
