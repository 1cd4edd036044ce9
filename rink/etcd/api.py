"""What the engine asks of an etcd: values, and the one interface that has two homes.

`rink.etcd.client.Client` speaks to a real cluster; `rink.testing.memory.cluster.MemoryEtcd` keeps the
same promises in this process. Both are run through one shared test suite. Only what Rink uses is
here; field names follow etcd's public rpc.proto.

Keys and values are bytes: what lies in the key range may not be ours.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable


@attrs.frozen
class Header:
    """Who answered, and how far it had got."""

    cluster_id: int
    member_id: int
    revision: int
    raft_term: int


@attrs.frozen
class KeyValue:
    """One key as etcd holds it; `lease` is 0 where none is bound."""

    key: bytes
    value: bytes
    create_revision: int
    mod_revision: int
    version: int
    lease: int


class TxnTarget(enum.Enum):
    """What a `Compare` looks at; each is 0 for a key that does not exist."""

    VERSION = "version"
    CREATE = "create_revision"
    MOD = "mod_revision"


@attrs.frozen
class Compare:
    """Guard a transaction: the target equals a value, or is below it.

    With a `range_end` it holds if it holds for each key in [key, range_end). An empty range counts
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
    """An answered transaction; `results` has one entry per operation of the branch that ran.

    An entry holds the key-values of a Get, and is empty for a Put or a Delete.
    """

    header: Header
    succeeded: bool
    results: tuple[tuple[KeyValue, ...], ...]


@attrs.frozen
class RangeResult:
    """A linearizable read; `header.revision` is the revision it is true at."""

    header: Header
    kvs: tuple[KeyValue, ...]


@attrs.frozen
class GrantedLease:
    """A new lease; `ttl` in seconds is what etcd granted, which may be more than was asked."""

    lease: int
    ttl: int


@attrs.frozen
class KeyChange:
    """One change seen by a watch; a deletion has an empty value and the deletion's mod_revision."""

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
    """All changes of one or more whole revisions, in order; never a part of a revision."""

    revision: int
    events: tuple[KeyChange, ...]


@attrs.frozen
class WatchBroken:
    """The watch cannot go on, and has stopped: another cluster, refused, or begun too early.

    Lost connections are not reported this way: the watch goes on after those by itself.
    """

    error: Exception


@attrs.frozen
class KeepAliveAnswer:
    """The answer to one keepalive; `ttl` 0 means that the lease is gone.

    `sent_at` is the clock's reading just before that very request was sent. `call` is the number of
    the call that brought the answer, counted by the stream. A call lies within one history of etcd.
    """

    lease: int
    sent_at: float
    ttl: int
    call: int


class Watch(Protocol):
    """A running watch."""

    @property
    def trouble(self) -> str:
        """Return why no server follows the range, in words for people.

        It is empty where no reason is known.
        """
        ...

    def wait_open(self, seconds: float) -> bool:
        """Wait until a server follows the range, or the watch is over.

        Return False if it takes longer.
        """
        ...

    def note_list(self, revision: int | None) -> None:
        """Note at which revision the range was listed, or None while a list is under way.

        Events up to there may come again in another history that lacks what else the list had. So
        they do not prove that a later call reaches the same history. None is noted before the list
        is requested: else the call could break between its answer and this note.
        """
        ...

    def close(self) -> None:
        """Stop the watch.

        Nothing is delivered once this has returned, except from within a delivery.
        """
        ...


class KeepAlives(Protocol):
    """One keepalive stream for many leases."""

    @property
    def trouble(self) -> str:
        """Return why there is no stream now, in words for people.

        It is empty where no reason is known.
        """
        ...

    def send(self, lease: int) -> None:
        """Ask for one renewal.

        It never blocks, and reports nothing where the stream is down.
        """
        ...

    def forget(self, lease: int) -> None:
        """Forget the lease's requests that wait for a stream, or will have to."""
        ...

    def close(self) -> None:
        """End the stream."""
        ...


class Etcd(Protocol):
    """An etcd cluster.

    Every call has a deadline (`timeout` in seconds, the client's own where None) that covers all
    endpoints tried, and raises a `rink.EtcdError` when it ends without an answer. A transaction
    that raised may still be applied, now or later.
    """

    @property
    def timeout(self) -> float:
        """Return the timeout, in seconds, of a call that names none."""
        ...

    @property
    def endpoint(self) -> str:
        """Return the endpoint that is asked first now."""
        ...

    @property
    def epoch(self) -> int:
        """Return how often another cluster or another history was seen."""
        ...

    def range(
        self, key: bytes, range_end: bytes = b"", *, timeout: float | None = None
    ) -> RangeResult:
        """Read [key, range_end) linearizably (one key where range_end is empty)."""
        ...

    def txn(
        self,
        compare: tuple[Compare, ...],
        then: tuple[Op, ...],
        otherwise: tuple[Op, ...] = (),
        *,
        timeout: float | None = None,
    ) -> TxnResult:
        """Run one branch atomically.

        It is sent once: a lost answer raises, and is not retried.
        """
        ...

    def grant(self, ttl: int, *, lease: int = 0, timeout: float | None = None) -> GrantedLease:
        """Take a new lease for `ttl` seconds.

        Its id is the caller's unless that is 0. Whoever chose the id can revoke a lease whose grant
        was not answered. It must be nobody else's: "exists", said of a grant that was sent again,
        is taken for one's own.
        """
        ...

    def revoke(self, lease: int, *, timeout: float | None = None) -> None:
        """End a lease, deleting the keys bound to it.

        Ending a lease that etcd does not know is fine.
        """
        ...

    def time_to_live(self, lease: int, *, timeout: float | None = None) -> int:
        """Return the seconds that a lease has left, or -1 if it is unknown."""
        ...

    def watch(
        self,
        key: bytes,
        range_end: bytes,
        start_revision: int,
        deliver: Callable[[WatchOpened | WatchEvents | WatchBroken], None],
    ) -> Watch:
        """Deliver all changes in [key, range_end).

        Between two openings none is lost and none comes twice. The first call begins at
        `start_revision`, or with what happens then where that is 0. Each time a `WatchOpened` is
        delivered the range is to be listed anew. `deliver` is called on a thread of the watch's
        own, one call at a time.
        """
        ...

    def keepalives(self, deliver: Callable[[KeepAliveAnswer], None]) -> KeepAlives:
        """Open the keepalive stream.

        It reconnects by itself. `deliver` runs on its thread.
        """
        ...

    def close(self) -> None:
        """Close every channel, watch and stream."""
        ...
