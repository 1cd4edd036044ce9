"""The values that lie in etcd, as Python: `MemberRecord`, `Version`, `Request`, and what reads give.

Everything here is frozen. `rink.core.codec` turns these into JSON and back; `rink.core.keys` says
under which keys they lie.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from rink.core.schemes import MAX_SIZE

FORMAT = 1
"""The format number this code writes; a value with another one claims everything."""


class Phase(enum.Enum):
    """Name what a member says of itself in its record.

    A member that leaves is `OFFERING` first, for its `handover_wait`: it serves, and its rank goes
    to whoever waits for one. Then it is `LEAVING`: the group may shrink without it.
    """

    ACTIVE = "active"
    OFFERING = "offering"
    LEAVING = "leaving"


@attrs.frozen
class Share:
    """What one ranked member owns in one version.

    A role is in it when the scheme maps it to `rank` of `size` and it is not in `taken` (pinned
    to somebody else), or when it is in `gained` (pinned to this member).
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
        """Return whether the role is in this share, given its rank.

        The rank is the one that the scheme maps the role to.
        """
        return role in self.gained or (rank == self.rank and role not in self.taken)


@attrs.frozen
class MemberRecord:
    """What a member says under its own key; only that member writes it (R1).

    `leads_by` is the settings that count only while it coordinates: for people, who should know of
    members that differ before one of them coordinates.
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


@attrs.frozen
class Version:
    """An immutable map from rank to member; `ranks[i]` is the member with rank i.

    `skipped` does not lie in etcd, and is no part of what makes two versions equal. It is set by
    `versions()` alone: the numbers that this iteration left out just before this version.
    """

    number: int
    ranks: tuple[str, ...]
    scheme: str
    pins: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    token_base: int = 0
    because: tuple[str, ...] = ()
    by: str = ""
    proclaimed: str = ""
    skipped: range = attrs.field(default=range(0), eq=False)


class Wish(enum.Enum):
    """The kinds of requests that an operator may post."""

    PIN = "pin"
    UNPIN = "unpin"
    TOKEN_BASE = "token_base"  # noqa: S105 - a fencing token is no secret


@attrs.frozen
class Request:
    """An operator's wish: pin `role` to `member`, unpin it, or raise the token base."""

    wish: Wish
    role: str = ""
    member: str = ""
    token_base: int = 0


@attrs.frozen
class Member:
    """A record as the view has it; `record` is None where it cannot be read."""

    name: str
    record: MemberRecord | None
    create_revision: int
    mod_revision: int
    lease: int
    problem: str = ""

    @property
    def can_coordinate(self) -> bool:
        """Return whether the member is bound to a lease and can be read.

        No other member coordinates.
        """
        return self.lease != 0 and self.record is not None

    @property
    def is_active(self) -> bool:
        """Return whether the record can be read and the member does not leave."""
        return self.record is not None and self.record.phase is Phase.ACTIVE

    @property
    def is_offering(self) -> bool:
        """Return whether the member serves until another one takes its rank."""
        return self.record is not None and self.record.phase is Phase.OFFERING


@attrs.frozen
class Proclaimed:
    """A version as the view has it; `version` is None where it cannot be read."""

    number: int
    version: Version | None
    mod_revision: int
    bytes: int
    problem: str = ""


@attrs.frozen
class Asked:
    """A request as the view has it; `request` is None where it cannot be read."""

    id: str
    request: Request | None
    mod_revision: int
    problem: str = ""


@attrs.frozen
class Clutter:
    """A key in the group's range that no Rink writes; it is reported and left alone."""

    key: str
    problem: str


Entry = Member | Proclaimed | Asked | Clutter
