"""What a member wants done: the effects that `Node.step` returns. Imperative, frozen."""

from __future__ import annotations

import enum

import attrs

from rink.core.holds import Handle, Hold
from rink.core.values import MemberRecord, Request, Version


@attrs.frozen
class GrantLease:
    """Ask etcd for a lease of `ttl` seconds."""

    ttl: int


@attrs.frozen
class KeepLease:
    """Renew this lease from now on, until `RevokeLease` or `DropLease`."""

    lease: int
    ttl: int


@attrs.frozen
class DropLease:
    """Renew this lease no more: etcd has ended it, or it is to run out."""

    lease: int


@attrs.frozen
class RevokeLease:
    """Renew this lease no more, and end it, which deletes the record."""

    lease: int


@attrs.frozen
class WriteRecord:
    """Put this member's record if its mod_revision is still `compare` (0: if there is none)."""

    attempt: int
    lease: int
    compare: int
    record: MemberRecord


@attrs.frozen
class Proclaim:
    """Put a version if this member's record was created at `create_revision`, as R4 says.

    `after` is the mod_revision of the version before it, 0 for the first one: the guard that it
    exists, and is the one that was planned from.
    """

    version: Version
    create_revision: int
    after: int = 0
    requests: tuple[str, ...] = ()


@attrs.frozen
class ListGroup:
    """Read the group's key range anew: the view was thrown away.

    `wanted` is to be carried by the lists that are asked for from now on (`Listed`).
    """

    wanted: int


@attrs.frozen
class ReadRecord:
    """Read this member's record, which decides whether the answers of a new keepalive call count.

    `mod_revision` is that of the last answered write. The timeout is `within_s` seconds, or the
    session's timeout if that is shorter.
    """

    lease: int
    call: int
    mod_revision: int
    within_s: float


@attrs.frozen
class PostRequest:
    """Post a request under this id, as operators do, unless it lies in etcd already."""

    id: str
    request: Request


@attrs.frozen
class Prune:
    """Delete every version with a number below this one."""

    below: int


@attrs.frozen
class LookUpLease:
    """Ask etcd whether it knows the lease that a record is bound to (0: it has none)."""

    name: str
    mod_revision: int
    lease: int


@attrs.frozen
class RemoveRecord:
    """Delete a dead record if it is still the one with this mod_revision (R8)."""

    name: str
    mod_revision: int


@attrs.frozen
class Lose:
    """A role was lost: set its signal. The table says so already."""

    hold: Hold


@attrs.frozen
class Grant:
    """A handle that waited got its role: set its signal."""

    handle: Handle


@attrs.frozen
class Refuse:
    """A handle waits in vain, and its `refused` says why: set its signal."""

    handle: Handle


@attrs.frozen
class Joined:
    """The record exists and the view is loaded."""


@attrs.frozen
class JoinFailed:
    """The first join is given up."""

    error: Exception


@attrs.frozen
class Left:
    """The member is gone from the group."""


@attrs.frozen
class CoordinatorChanged:
    """The member begins or ceases to coordinate the group."""

    coordinates: bool


@attrs.frozen
class RankChanged:
    """The member's rank changed; None is unranked."""

    rank: int | None


class Level(enum.Enum):
    """How loud a report is."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@attrs.frozen
class Report:
    """Write a line to the log.

    Warnings and errors also show in `status().last_error`.

    `version` and `role` are what it is about, if it is about one.
    """

    level: Level
    text: str
    version: int | None = None
    role: str | None = None


Effect = (
    GrantLease
    | KeepLease
    | DropLease
    | RevokeLease
    | WriteRecord
    | Proclaim
    | ListGroup
    | ReadRecord
    | PostRequest
    | Prune
    | LookUpLease
    | RemoveRecord
    | Lose
    | Grant
    | Refuse
    | Joined
    | JoinFailed
    | Left
    | CoordinatorChanged
    | RankChanged
    | Report
)
