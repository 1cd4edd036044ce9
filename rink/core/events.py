"""What can happen to a member: the events that `Node.step` takes. Past tense, frozen."""

from __future__ import annotations

import attrs

from rink.core.values import Entry, Member
from rink.core.view import Change


@attrs.frozen
class Listed:
    """The group's whole key range was read, true at `revision`.

    `wanted` is the number of the `ListGroup` that it answers, 0 for the list at the beginning.
    """

    revision: int
    entries: tuple[Entry, ...]
    wanted: int = 0


@attrs.frozen
class Changed:
    """The watch brought the changes of whole revisions, up to `revision`."""

    revision: int
    changes: tuple[Change, ...]


@attrs.frozen
class ListFailed:
    """The group's key range could not be read."""

    error: Exception


@attrs.frozen
class HistoryChanged:
    """Another cluster answered, or this one's history went back: nothing seen so far counts."""

    because: str


@attrs.frozen
class LeaseGranted:
    """A lease was granted; `sent_at` is the clock just before it was asked for.

    `incarnation` is a fresh uuid for the record that will be bound to it.
    """

    lease: int
    ttl: int
    sent_at: float
    incarnation: str


@attrs.frozen
class LeaseFailed:
    """No lease was granted; the request may have left one behind that nobody renews."""

    error: Exception


@attrs.frozen
class LeaseEnded:
    """etcd answered TTL 0: the lease is gone."""

    lease: int


@attrs.frozen
class LeaseRevoked:
    """The revocation was answered."""

    lease: int


@attrs.frozen
class RevokeFailed:
    """The revocation was not answered."""

    lease: int
    error: Exception


@attrs.frozen
class WriteAnswered:
    """The transaction on this member's record was answered, by either branch (R1).

    `found` is what the else branch returned, None where there was no record.
    """

    attempt: int
    applied: bool
    revision: int
    found: Member | None = None


@attrs.frozen
class WriteFailed:
    """The transaction on this member's record ended without an answer: it may yet be applied."""

    attempt: int
    error: Exception


@attrs.frozen
class ProclaimAnswered:
    """The transaction that proclaims a version was answered."""

    number: int
    applied: bool


@attrs.frozen
class ProclaimFailed:
    """The transaction that proclaims a version ended without an answer."""

    number: int
    error: Exception


@attrs.frozen
class RequestPosted:
    """The request of this member was posted."""


@attrs.frozen
class PostFailed:
    """The post of a request was not answered; it may lie in etcd."""

    error: Exception


@attrs.frozen
class RecordRead:
    """This member's record was read: `found`, or None where there is no record under the own key.

    The other fields are those of the `ReadRecord` that this answers.
    """

    lease: int
    call: int
    mod_revision: int
    found: Member | None


@attrs.frozen
class RecordReadFailed:
    """This member's record could not be read; `lease` and `call` are those of the `ReadRecord`."""

    lease: int
    call: int
    error: Exception


@attrs.frozen
class ChoreFailed:
    """A request failed that is made again anyway; `doing` says for people what it was for."""

    doing: str
    error: Exception


@attrs.frozen
class LeaseLookedUp:
    """Whether etcd knows the lease that a record is bound to."""

    name: str
    mod_revision: int
    is_known: bool


@attrs.frozen
class LeaveAsked:
    """The user leaves.

    `release_within` bounds the wait for handles, in seconds: the member's `leave_timeout` where
    None, and infinity for no bound.
    """

    keep_rank: bool = False
    release_within: float | None = None


@attrs.frozen
class Nudged:
    """Something under the lock changed (a release, a waiter), or time has passed."""


Event = (
    Listed
    | Changed
    | ListFailed
    | HistoryChanged
    | LeaseGranted
    | LeaseFailed
    | LeaseEnded
    | LeaseRevoked
    | RevokeFailed
    | WriteAnswered
    | WriteFailed
    | ProclaimAnswered
    | ProclaimFailed
    | RequestPosted
    | PostFailed
    | RecordRead
    | RecordReadFailed
    | ChoreFailed
    | LeaseLookedUp
    | LeaveAsked
    | Nudged
)
