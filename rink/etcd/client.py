"""Implement `rink.etcd.api.Etcd` for a real cluster.

It uses blocking gRPC in threads and not grpc.aio, because children of a process with a live aio
channel crash. docs/internals/design/0002-etcd-client.md says why Rink has its own client.
"""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import TYPE_CHECKING, Any, Self

from rink.errors import EtcdError
from rink.etcd import api
from rink.etcd.auth_token import GivenTokens, Tokens, UserTokens
from rink.etcd.bidi_call import Streams
from rink.etcd.connections import Connection, OwnConnection, Ring
from rink.etcd.endpoints import check_timeout, check_user, read_endpoints
from rink.etcd.etcd3_channels import borrow
from rink.etcd.keepalive import KeepAliveStream
from rink.etcd.messages import from_txn, to_header, to_key_value, to_txn_result
from rink.etcd.methods import COMPACT, GRANT, MEMBERS, RANGE, REVOKE, STATUS, TIME_TO_LIVE, TXN
from rink.etcd.proto import rinketcd_pb2 as pb
from rink.etcd.server_versions import DEV_NAME
from rink.etcd.tls import Pem, TlsSource
from rink.etcd.transport import AppliedBeforeError, RequestKind, Transport
from rink.etcd.watch import RunningWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rink.etcd.cluster_identity import KnownCluster

_CLOCK_ID = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_clock() -> float:
    """Return seconds of a clock that counts suspended time, if there is one."""
    return time.clock_gettime(_CLOCK_ID)


class Client:
    """Send requests to one etcd cluster. Thread-safe.

    Nothing is opened before the first call. The endpoint that answered last is tried first. If it
    fails, the next one is tried.

    Args:
        endpoints: `http://host:port`, `https://host:port` or `host:port` (https if `ca` or `cert`
            is given). They belong to one cluster.
        timeout: default seconds that a call may take, for all endpoints together.
        user: etcd user, together with `password`.
        password: the user's password.
        ca: PEM file, or PEM text as bytes, of the certificate authority of the servers; None uses
            gRPC's authorities. Files are read again for each new connection.
        cert: PEM file or bytes of a client certificate, together with `key`.
        key: PEM file or bytes of its key, unencrypted.
        clock: function that returns the time of `KeepAliveAnswer.sent_at`, in seconds.

    Raises:
        rink.errors.ConfigError: a setting cannot work; the message names it.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        timeout: float = 5.0,
        user: str | None = None,
        password: str | None = None,
        ca: Pem | None = None,
        cert: Pem | None = None,
        key: Pem | None = None,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        tls = TlsSource(ca, cert, key)
        read = read_endpoints(endpoints, tls=tls.is_given)
        check_user(user, password)
        tokens = UserTokens(user, password) if user is not None and password is not None else None
        connections = [OwnConnection(endpoint, tls) for endpoint in read]
        self._start(connections, tokens, timeout, clock)

    @classmethod
    def from_etcd3(
        cls, client: Any, *, timeout: float = 5.0, clock: Callable[[], float] = boot_clock
    ) -> Self:
        """Return a client that uses the channels and login of an `etcd3` client.

        The application must keep its client (of python3-etcd3) open while this one is used, and
        close it afterwards. If etcd refuses the token, this client raises EtcdAuth, since only the
        application can log in again.

        Only the application can make a new channel, too. (For its own connections, Rink makes one
        if a name has a new address, a certificate was rotated, or no thread could be started.) The
        application's channel options decide how soon gRPC notices a broken connection, and how soon
        it looks up a name again.

        Raises:
            rink.errors.ConfigError: `client` is not an etcd3 client.
        """
        instance = cls.__new__(cls)
        connections, tokens = borrow(client)
        instance._start(connections, tokens, timeout, clock)  # noqa: SLF001 - its own
        return instance

    def fail_refused(self) -> None:
        """Fail calls at once from now on if every endpoint refuses to connect.

        Otherwise a call waits for its timeout, since etcd may be about to start.
        """
        self._transport.fail_refused = True

    def _start(
        self,
        connections: Sequence[Connection],
        tokens: Tokens | None,
        timeout: float,
        clock: Callable[[], float],
    ) -> None:
        check_timeout(timeout)
        self.timeout = timeout
        self._clock = clock
        self._transport = Transport(Ring(connections), tokens or GivenTokens())
        self._streams = Streams(self._transport)
        _clients.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def epoch(self) -> int:
        """Return how often another cluster or another history was seen."""
        return self._transport.guard.known.epoch

    @property
    def guard(self) -> KnownCluster:
        """Return the cluster's id, and the highest raft term and revision seen."""
        self._transport.check_not_forked()
        return self._transport.guard.known

    @property
    def calls(self) -> dict[str, int]:
        """Return how many requests were sent, by name; retries count."""
        return self._transport.calls

    @property
    def endpoint(self) -> str:
        """Return the endpoint that is tried first now."""
        self._transport.check_not_forked()
        return self._transport.ring.first.name

    # ---------------------------------------------------------------- keys

    def range(
        self, key: bytes, range_end: bytes = b"", *, timeout: float | None = None
    ) -> api.RangeResult:
        """Read [key, range_end) linearizably, or one key if range_end is empty."""
        answer = self._transport.call(
            RANGE,
            pb.RangeRequest(key=key, range_end=range_end),
            RequestKind(f"range of {key!r}", revision=True, quorum=True),
            self._seconds(timeout),
        )
        self._transport.remember_readable(key)
        return api.RangeResult(to_header(answer.header), tuple(map(to_key_value, answer.kvs)))

    def txn(
        self,
        compare: tuple[api.Compare, ...],
        then: tuple[api.Op, ...],
        otherwise: tuple[api.Op, ...] = (),
        *,
        timeout: float | None = None,
    ) -> api.TxnResult:
        """Run one branch atomically: `then` if every compare holds.

        It is sent once. If the answer is lost, this raises and does not retry.

        Raises:
            rink.errors.EtcdUnavailable: no answer; it may still be applied, now or later.
            rink.errors.EtcdError: etcd refused it, and nothing was done.
        """
        first = next((part.key for part in (*compare, *then, *otherwise)), b"")
        answer = self._transport.call(
            TXN,
            from_txn(compare, then, otherwise),
            RequestKind(f"txn on {first!r}", once=True, revision=True, quorum=True),
            self._seconds(timeout),
        )
        return to_txn_result(answer)

    def compact(self, revision: int, *, timeout: float | None = None) -> None:
        """Drop the history below a revision."""
        self._transport.call(
            COMPACT,
            pb.CompactionRequest(revision=revision, physical=True),
            RequestKind(f"compaction at {revision}", quorum=True),
            self._seconds(timeout),
        )

    # ---------------------------------------------------------------- leases

    def grant(self, ttl: int, *, lease: int = 0, timeout: float | None = None) -> api.GrantedLease:
        """Grant a new lease of `ttl` seconds or more.

        If the answer is lost, the lease may exist until its `ttl` ends. A caller that chose its id
        can revoke it earlier; 0 lets etcd choose. An id that exists raises EtcdError. But if the
        first try is not answered, and the next is refused because the lease exists, the first try
        counts as successful. So a chosen id must be unique.
        """
        doing = f"a lease of {ttl} s"
        want = RequestKind(doing, quorum=True, says_applied="lease already exists" if lease else "")
        request = pb.LeaseGrantRequest(TTL=ttl, ID=lease)
        try:
            answer = self._transport.call(GRANT, request, want, self._seconds(timeout))
        except AppliedBeforeError:
            return api.GrantedLease(lease, ttl)
        if answer.error:
            raise EtcdError(f"etcd granted no lease of {ttl} s: {answer.error}")
        return api.GrantedLease(answer.ID, answer.TTL)

    def revoke(self, lease: int, *, timeout: float | None = None) -> None:
        """End a lease, if etcd knows it, and delete the keys bound to it."""
        try:
            self._transport.call(
                REVOKE,
                pb.LeaseRevokeRequest(ID=lease),
                RequestKind(f"the end of lease {lease:x}", quorum=True),
                self._seconds(timeout),
            )
        except EtcdError as error:
            if "lease not found" not in str(error):
                raise

    def time_to_live(self, lease: int, *, timeout: float | None = None) -> int:
        """Return the seconds that a lease has left, or -1 if it is unknown."""
        answer = self._transport.call(
            TIME_TO_LIVE,
            pb.LeaseTimeToLiveRequest(ID=lease),
            RequestKind(f"the time left of lease {lease:x}"),
            self._seconds(timeout),
        )
        return answer.TTL

    # ---------------------------------------------------------------- streams

    def watch(
        self,
        key: bytes,
        range_end: bytes,
        start_revision: int,
        deliver: Callable[[api.WatchOpened | api.WatchEvents | api.WatchBroken], None],
    ) -> RunningWatch:
        """Deliver all changes in [key, range_end), as `rink.etcd.api.Etcd.watch`.

        A compacted `start_revision` ends the watch with a WatchBroken. If `deliver` raises, the
        error is logged, and the watch ends with a WatchBroken of that error.
        """
        self._transport.check_usable()
        watch = RunningWatch(self._transport, key, range_end, start_revision, deliver)
        self._streams.start(watch)
        return watch

    def keepalives(self, deliver: Callable[[api.KeepAliveAnswer], None]) -> KeepAliveStream:
        """Open the keepalive stream, which reconnects by itself.

        `deliver` is called on the stream's own thread. Its errors are logged.
        """
        self._transport.check_usable()
        stream = KeepAliveStream(self._transport, deliver, self._clock, self._is_gone)
        self._streams.start(stream)
        return stream

    def _is_gone(self, lease: int) -> bool:
        # The timeout is short, since the stream's other answers wait meanwhile.
        return self.time_to_live(lease, timeout=min(self.timeout, 2.0)) < 0

    # ---------------------------------------------------------------- the rest

    def version(self, *, timeout: float | None = None) -> str:
        """Return the version of the etcd that answers, such as `3.5.1`."""
        answer = self._transport.call(
            STATUS, pb.StatusRequest(), RequestKind("status"), self._seconds(timeout)
        )
        return answer.version

    def is_of_rink_dev(self, *, timeout: float | None = None) -> bool:
        """Return whether `rink dev` runs this etcd, by its only member's name.

        Return False if the call fails, so that a failure causes no false warning.
        """
        request, want = pb.MemberListRequest(), RequestKind("the list of its members")
        try:
            answer = self._transport.call(MEMBERS, request, want, self._seconds(timeout))
        except EtcdError:
            return False
        return [member.name for member in answer.members] == [DEV_NAME]

    def close(self) -> None:
        """Close every channel, watch and stream.

        Unfinished calls end with ClosedError. In a forked child this does nothing, since the client
        belongs to the parent.
        """
        if self._transport.is_forked:
            return
        self._transport.closed.set()
        self._streams.close()
        self._transport.ring.close()
        self._streams.join()

    def _seconds(self, timeout: float | None) -> float:
        if timeout is None:
            return self.timeout
        check_timeout(timeout)
        return timeout


_clients: weakref.WeakSet[Client] = weakref.WeakSet()
_kept_by_child: list[Client] = []


def _keep_all() -> None:
    """Keep the parent's clients in a forked child until it ends.

    Calls over an inherited gRPC channel sometimes hang or fail, and so does closing it. A client
    that is never collected runs no destructor of gRPC. docs/internals/design/0002-etcd-client.md
    has the figures.
    """
    _kept_by_child.extend(_clients)


def _close_all() -> None:
    """Close the clients that are still open when the process exits.

    Otherwise threads that read streams may wake in gRPC while the interpreter exits. On a busy
    machine, 8 of 100 such processes ended by SIGSEGV. Sessions are closed before this, because
    their exit handler is registered later.
    """
    for client in list(_clients):
        client.close()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_keep_all)
