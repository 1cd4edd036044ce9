"""Define the effects that `Node.step` returns, in the imperative."""

from __future__ import annotations

import enum

import attrs

from rink.core.holds import Handle, Hold
from rink.core.member_record import MemberRecord
from rink.core.values import Request, Version


@attrs.frozen
class Effect:
    """Name one action after a step."""


@attrs.frozen
class GrantLease(Effect):
    """Ask etcd for a lease of `ttl` seconds."""

    ttl: int


@attrs.frozen
class KeepLease(Effect):
    """Renew this lease from now on, until `RevokeLease` or `DropLease`."""

    lease: int
    ttl: int


@attrs.frozen
class DropLease(Effect):
    """Stop renewing a lease that etcd has ended, or that is to run out."""

    lease: int


@attrs.frozen
class RevokeLease(Effect):
    """Stop renewing a lease, and end it, which deletes the record."""

    lease: int


@attrs.frozen
class WriteRecord(Effect):
    """Put this member's record if its mod_revision is `compare` (0: absent)."""

    attempt: int
    lease: int
    compare: int
    record: MemberRecord


@attrs.frozen
class Proclaim(Effect):
    """Put a version if this member still coordinates (R4).

    The transaction checks that this member's record was created at `create_revision`. It also
    checks that the version before has the mod_revision `after`, so it still is the version that
    this one was planned from. For the first version, `after` is 0.
    """

    version: Version
    create_revision: int
    after: int = 0
    requests: tuple[str, ...] = ()


@attrs.frozen
class ListGroup(Effect):
    """List the group anew. Lists from now on carry `wanted` (`Listed`)."""

    wanted: int


@attrs.frozen
class ReadRecord(Effect):
    """Read this member's record, to judge a new keepalive call by it.

    `mod_revision` is that of the last answered write. The timeout is `within_s` seconds, or the
    session's timeout if that is shorter.
    """

    lease: int
    call: int
    mod_revision: int
    within_s: float


@attrs.frozen
class PostRequest(Effect):
    """Post a request under this id, unless it is in etcd already."""

    id: str
    request: Request


@attrs.frozen
class Prune(Effect):
    """Delete every version with a number below this one."""

    below: int


@attrs.frozen
class LookUpLease(Effect):
    """Ask etcd whether it knows the lease of a record; 0 means no lease."""

    name: str
    mod_revision: int
    lease: int


@attrs.frozen
class RemoveRecord(Effect):
    """Delete a dead record if it still has this mod_revision (R8)."""

    name: str
    mod_revision: int


@attrs.frozen
class Lose(Effect):
    """Set the signals of all handles of a lost role."""

    hold: Hold


@attrs.frozen
class Grant(Effect):
    """Set the signal of a waiting handle that got its role."""

    handle: Handle


@attrs.frozen
class Refuse(Effect):
    """Set the signal of a handle that waits in vain; its `refused` says why."""

    handle: Handle


@attrs.frozen
class Joined(Effect):
    """Report the join: the record exists, and the view has it."""


@attrs.frozen
class JoinFailed(Effect):
    """Report that the join is given up."""

    error: Exception


@attrs.frozen
class Left(Effect):
    """Report that the member has left the group."""


@attrs.frozen
class CoordinatorChanged(Effect):
    """Report whether the member coordinates the group now."""

    coordinates: bool


@attrs.frozen
class RankChanged(Effect):
    """Report the member's new rank; None without a rank."""

    rank: int | None


class Level(enum.IntEnum):
    """Name the log levels of reports, with the numbers of `logging`."""

    INFO = 20
    WARNING = 30
    ERROR = 40


@attrs.frozen
class Report(Effect):
    """Write a line to the log.

    Warnings and errors also show in `status().last_error`. The line may be about a version or role.
    """

    level: Level
    text: str
    version: int | None = None
    role: str | None = None
