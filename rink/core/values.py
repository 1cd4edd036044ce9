"""Define the values that are stored in etcd, and the entries of a view.

etcd stores `Version`, `Request` and the `MemberRecord` of `rink.core.member_record`.
`rink.core.codec` turns them into JSON and back, and `rink.core.keys` has their keys. Everything
here is frozen.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import attrs

from rink.core.member_record import MemberRecord, Phase

FORMAT = 1
"""Format number of this code. A record with another number claims everything."""


@attrs.frozen
class Version:
    """Map each rank to its member: `ranks[i]` is the member with rank i.

    `skipped` is not stored in etcd, and does not count when two versions are compared. Only
    `versions()` sets it, to the numbers that the iteration left out just before this version.
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
    """Name the kinds of requests that an operator may post."""

    PIN = "pin"
    UNPIN = "unpin"
    TOKEN_BASE = "token_base"  # noqa: S105 - a fencing token is no secret


@attrs.frozen
class Request:
    """Ask to pin `role` to `member`, to unpin it, or for a token base."""

    wish: Wish
    role: str = ""
    member: str = ""
    token_base: int = 0


@attrs.frozen
class Member:
    """Hold a member's key as the view has it.

    In this and the next two classes, the content is None if it cannot be read, and `problem` says
    why.
    """

    name: str
    record: MemberRecord | None
    create_revision: int
    mod_revision: int
    lease: int
    problem: str = ""

    @property
    def can_coordinate(self) -> bool:
        """Return whether the record is bound to a lease and can be read.

        Only such a member coordinates (R4).
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
    """Hold a version's key as the view has it."""

    number: int
    version: Version | None
    mod_revision: int
    bytes: int
    problem: str = ""


@attrs.frozen
class RequestEntry:
    """Hold a request's key as the view has it."""

    id: str
    request: Request | None
    mod_revision: int
    problem: str = ""


@attrs.frozen
class Clutter:
    """Hold a key in the group's range that no Rink writes.

    It is reported and left alone.
    """

    key: str
    problem: str


Entry = Member | Proclaimed | RequestEntry | Clutter
