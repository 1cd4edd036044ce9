"""Define the interface to etcd that the engine uses, and its values.

`rink.etcd.client.Client` speaks to a real cluster. `rink.testing.memory.cluster.MemoryEtcd` keeps
the same promises in this process. Both pass one shared test suite. Only what Rink uses is here.
Field names follow etcd's public rpc.proto.

Keys and values are bytes, since the key range may hold data of other programs.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable


@attrs.frozen
class Header:
    """Name the server that answered, with its revision and raft term."""

    cluster_id: int
    member_id: int
    revision: int
    raft_term: int


@attrs.frozen
class KeyValue:
    """Hold one key as etcd has it; `lease` is 0 if no lease is bound."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


class TxnTarget(enum.Enum):
    """Name the number that a `Compare` checks; it is 0 for a missing key."""

    VERSION = "version"
    CREATE = "create_revision"
    MOD = "mod_revision"


@attrs.frozen
class Compare:
    """Guard a transaction: the target equals a value, or is below it.

    With a `range_end`, it must hold for each key in [key, range_end). An empty range counts
    as a key that does not exist.
    """

    key: bytes
    target: TxnTarget
    value: int
    range_end: bytes = b""
    is_below: bool = False


@attrs.frozen
class Put:
    """Write a key, bound to a lease unless that is 0."""

    key: bytes
    value: bytes
    lease: int = 0


@attrs.frozen
class Get:
    """Read a key, or all keys in [key, range_end)."""

    key: bytes
    range_end: bytes = b""


@attrs.frozen
class Delete:
    """Remove a key, or all keys in [key, range_end)."""

    key: bytes
    range_end: bytes = b""


Op = Put | Get | Delete


@attrs.frozen
class TxnResult:
    """Hold the answer to a transaction.

    `results` has one entry for each operation of the branch that ran. It holds the key-values of a
    Get, and is empty for a Put or a Delete.
    """

    header: Header
    succeeded: bool
    results: tuple[tuple[KeyValue, ...], ...]


@attrs.frozen
class RangeResult:
    """Hold the answer to a linearizable read, as of `header.revision`."""

    header: Header
    kvs: tuple[KeyValue, ...]


@attrs.frozen
class GrantedLease:
    """Hold a new lease; its `ttl` (in seconds) may be above the request."""

    lease: int
    ttl: int


@attrs.frozen
class KeyChange:
    """Hold one change of a key.

    A deletion has an empty value and the deletion's mod_revision.
    """

    kv: KeyValue
    deleted: bool


@attrs.frozen
class WatchOpened:
    """Mark that a watch begins to follow a possibly different history.

    A watch delivers this for its first call. After an interruption it does so only if nothing shows
    that etcd's history is still the one of the delivered events. A view of the range is valid only
    if it was listed after this (R11).
    """


@attrs.frozen
class WatchEvents:
    """Hold all changes of one or more whole revisions, in order."""

    revision: int
    events: tuple[KeyChange, ...]


@attrs.frozen
class WatchBroken:
    """Report that the watch has stopped and cannot go on.

    Another cluster answered, etcd refused the watch, or its start was compacted. After a lost
    connection the watch goes on by itself, and this is not delivered.
    """

    error: Exception


WatchMessage = WatchOpened | WatchEvents | WatchBroken


@attrs.frozen
class KeepAliveAnswer:
    """Hold the answer to a keepalive; `ttl` 0 means that the lease is gone.

    `sent_at` is the clock's time just before the request was sent. `call` is the number of the
    call that brought the answer, as the stream counts. A call lies within one history of etcd.
    """

    lease: int
    sent_at: float
    ttl: int
    call: int


class Watch(Protocol):
    """Control a running watch."""

    @property
    def trouble(self) -> str:
        """Return why no server follows the range, for people, or ""."""

    def wait_open(self, seconds: float) -> bool:
        """Wait until a server follows the range, or the watch is over.

        Return False if it takes longer.
        """

    def note_list(self, revision: int | None) -> None:
        """Note the revision of the last list, or None while a list is under way.

        Events up to that revision may come again in another history that lacks other changes of
        the list. So they do not prove that a later call reaches the same history. Note None before
        the list is requested. Otherwise the call could break between the list's answer and this
        note.
        """

    def close(self) -> None:
        """Stop the watch.

        After this has returned, nothing is delivered. If it is called within a delivery, that
        delivery still ends.
        """


class KeepAlives(Protocol):
    """Control one keepalive stream for many leases."""

    @property
    def trouble(self) -> str:
        """Return why there is no stream now, for people, or ""."""

    def send(self, lease: int) -> None:
        """Request one renewal.

        This never blocks. It raises nothing while the stream is down.
        """

    def forget(self, lease: int) -> None:
        """Stop sending requests of this lease, also unanswered ones."""

    def close(self) -> None:
        """End the stream."""


class Etcd(Protocol):
    """Send requests to an etcd cluster.

    Every call has a deadline for all endpoints together: `timeout` in seconds, or the client's own
    if None. It raises a `rink.EtcdError` if it gets no answer by then. A transaction that raised
    may still be applied, now or later.
    """

    @property
    def timeout(self) -> float:
        """Return the default timeout of a call, in seconds."""

    @property
    def endpoint(self) -> str:
        """Return the endpoint that is tried first now."""

    @property
    def epoch(self) -> int:
        """Return how often another cluster or another history was seen."""

    def range(
        self, key: bytes, range_end: bytes = b"", *, timeout: float | None = None
    ) -> RangeResult:
        """Read [key, range_end) linearizably, or one key if range_end is empty."""

    def txn(
        self,
        compare: tuple[Compare, ...],
        then: tuple[Op, ...],
        otherwise: tuple[Op, ...] = (),
        *,
        timeout: float | None = None,
    ) -> TxnResult:
        """Run one branch atomically.

        It is sent once. If the answer is lost, this raises and does not retry.
        """

    def grant(self, ttl: int, *, lease: int = 0, timeout: float | None = None) -> GrantedLease:
        """Grant a new lease for `ttl` seconds.

        The caller chooses its id; with 0, etcd does. With a chosen id, the caller can revoke a
        lease whose grant was not answered. The id must be unique: if a repeated grant is refused
        because the lease exists, that lease is taken for the caller's own.
        """

    def revoke(self, lease: int, *, timeout: float | None = None) -> None:
        """End a lease, and delete the keys bound to it.

        Ending a lease that etcd does not know does nothing.
        """

    def time_to_live(self, lease: int, *, timeout: float | None = None) -> int:
        """Return the seconds that a lease has left, or -1 if it is unknown."""

    def watch(
        self,
        key: bytes,
        range_end: bytes,
        start_revision: int,
        deliver: Callable[[WatchOpened | WatchEvents | WatchBroken], None],
    ) -> Watch:
        """Deliver all changes in [key, range_end).

        Between two `WatchOpened`, no change is lost and none comes twice. The first call begins at
        `start_revision`, or with the next change if that is 0. After each `WatchOpened`, the caller
        must list the range again. `deliver` is called on the watch's own thread, one call at a
        time.
        """

    def keepalives(self, deliver: Callable[[KeepAliveAnswer], None]) -> KeepAlives:
        """Open the keepalive stream.

        It reconnects by itself. `deliver` is called on its own thread.
        """

    def close(self) -> None:
        """Close every channel, watch and stream."""
