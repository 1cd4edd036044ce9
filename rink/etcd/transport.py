"""Send a request to one endpoint after another, until a deadline.

A request that may be applied only once is never sent twice. Watches and keepalive streams share
parts of this: the order of the endpoints, the token, the guard, the counts, and the check of an
endpoint before its use.
"""

from __future__ import annotations

import collections
import os
import threading
import time
from typing import TYPE_CHECKING

import attrs
import grpc

from rink.backoff import Backoff
from rink.errors import (
    ClosedError,
    EtcdAuth,
    EtcdClusterChanged,
    EtcdError,
    EtcdTls,
    EtcdUnavailable,
    ForkedProcessError,
)
from rink.etcd.cluster_identity import ClusterIdentity, NoClusterIdError
from rink.etcd.error_map import Fault, FaultKind, is_about_tls, read_fault, refusal
from rink.etcd.methods import AUTHENTICATE, MEMBERS, RANGE, AnswerT, Method, Request
from rink.etcd.proto import rinketcd_pb2 as pb
from rink.etcd.setting_names import setting

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rink.etcd.auth_token import Tokens
    from rink.etcd.channels import CountedChannel, Metadata
    from rink.etcd.connections import Connection, Ring

# With this, an etcd server without a leader refuses requests, instead of being silent.
_HAS_LEADER = ("hasleader", "true")


class NotAnsweredError(Exception):
    """Report that one endpoint gave no answer. Internal."""

    def __init__(self, words: str, *, perhaps_applied: bool, is_refused: bool = False) -> None:
        super().__init__(words)
        self.words = words
        self.perhaps_applied = perhaps_applied
        self.is_refused = is_refused


class AppliedBeforeError(Exception):
    """Report that an earlier try was applied without an answer. Internal."""


@attrs.frozen
class RequestKind:
    """Hold the rules for sending a request and for reading its answer.

    Attributes:
        doing: the request in messages, such as `txn on b'rink/a'`.
        once: True if it must not be sent again after a server may have received it.
        says_applied: etcd's refusal if the request was applied before.
        revision: True if its answer is linearizable, so its revision counts for the guard.
        quorum: True if its answer needs a quorum, so its raft term counts for the guard.
    """

    doing: str
    once: bool = False
    says_applied: str = ""
    revision: bool = False
    quorum: bool = False


class Transport:
    """Hold the state that a `Client` and its streams share. Thread-safe.

    With `fail_refused`, a call fails at once if every endpoint refuses the connection.
    """

    def __init__(self, ring: Ring, tokens: Tokens) -> None:
        self.ring = ring
        self.guard = ClusterIdentity()
        self.tokens = tokens
        self.fail_refused = False
        self._pid = os.getpid()
        self.closed = threading.Event()  # once set, new calls and streams are refused
        self._counts: collections.Counter[str] = collections.Counter()
        self._counting = threading.Lock()
        # The key that `verify` reads. A user may not have permission for every key.
        self._readable = b"\0"
        self._servers: set[str] = set()  # endpoints that are known not to be a grpc-proxy

    def check_usable(self) -> None:
        """Refuse a call of a client that was closed, or made before a fork."""
        self.check_not_forked()
        if self.closed.is_set():
            raise ClosedError("the etcd client is closed")

    def check_not_forked(self) -> None:
        """Raise in a forked child.

        Call this before taking any lock, since a thread that does not exist in the child may hold
        it.
        """
        if self.is_forked:
            raise ForkedProcessError(
                "this etcd client was made by the parent process: make a new one after the fork"
            )

    @property
    def is_forked(self) -> bool:
        """Return whether this is a child of the process that made the client."""
        return os.getpid() != self._pid

    def count(self, name: str) -> None:
        """Count one more request of this name."""
        with self._counting:
            self._counts[name] += 1

    @property
    def calls(self) -> dict[str, int]:
        """Return how many requests of each name were sent."""
        self.check_not_forked()
        with self._counting:
            return dict(self._counts)

    # ---------------------------------------------------------------- single calls

    def call(
        self, method: Method[Request, AnswerT], request: Request, want: RequestKind, timeout: float
    ) -> AnswerT:
        """Send a request until it is answered, or until the timeout of all tries.

        Raises:
            EtcdError: etcd refused; EtcdUnavailable if no endpoint answered.
            AppliedBeforeError: an earlier try of this call was applied.
            ClosedError: the client was closed.
        """
        # Invariant: a request with `once` is sent at most once, unless it certainly reached no
        # server. `is_doubtful` is set as soon as a server may have received a try, and from then on
        # such a request raises instead of trying again. Before it is sent, the endpoint must have
        # answered a read: so a frozen or refusing endpoint costs a part of the deadline and leaves
        # no doubt. Other requests may be repeated. If etcd then refuses a repeated one with
        # `says_applied`, an earlier try was applied.
        self.check_usable()
        began_at = time.monotonic()
        deadline = began_at + timeout
        said: dict[str, str] = {}
        is_doubtful = False
        backoff: Backoff | None = None
        while True:
            refused = 0
            for connection, part in self._round(deadline):
                try:
                    if want.once and not connection.is_proven:
                        self.verify(connection, part)
                    until = deadline if want.once else part
                    return self.ask(connection, method, request, want, until)
                except NotAnsweredError as silence:
                    said[connection.name] = silence.words
                    self.ring.failed(connection)
                    self.check_usable()
                    refused += silence.is_refused
                    is_doubtful |= silence.perhaps_applied
                    if is_doubtful and want.once:
                        raise self._unavailable(want, began_at, said, perhaps=True) from silence
                except EtcdError as error:
                    if is_doubtful and want.says_applied and want.says_applied in str(error):
                        raise AppliedBeforeError from error
                    raise
            if self.fail_refused and refused == len(self.ring.in_order()):
                raise _refused(said)
            if backoff is None:
                backoff = Backoff(first=0.1, longest=0.5)
                self._find_tls_trouble(want, said, deadline)
            pause = backoff.next()
            if time.monotonic() + pause >= deadline:
                raise self._unavailable(want, began_at, said, perhaps=False)
            if self.closed.wait(pause):
                self.check_usable()

    def _round(self, deadline: float) -> Iterator[tuple[Connection, float]]:
        # Each endpoint gets its part of the remaining time, so a frozen one cannot take all of it.
        order = self.ring.in_order()
        for index, connection in enumerate(order):
            now = time.monotonic()
            if now < deadline:
                yield connection, now + (deadline - now) / (len(order) - index)

    def _find_tls_trouble(self, want: RequestKind, said: dict[str, str], deadline: float) -> None:
        for connection in self.ring.in_order():
            connection.find_tls_trouble(deadline)
        if said and all(is_about_tls(words) for words in said.values()):
            text = f"TLS failed for {want.doing}: {_list(said)}"
            raise EtcdTls(text, endpoints=list(said))

    def _unavailable(
        self, want: RequestKind, began_at: float, said: dict[str, str], *, perhaps: bool
    ) -> EtcdUnavailable:
        took = time.monotonic() - began_at
        advice = "Is etcd running there, and does it have a quorum?"
        if perhaps:
            advice = "It may still be applied, now or later."
        return EtcdUnavailable(
            f"etcd did not answer {want.doing} within {took:.1f} s ({_list(said)}). {advice}",
            endpoints=list(said),
        )

    # ---------------------------------------------------------------- one endpoint

    def ask(
        self,
        connection: Connection,
        method: Method[Request, AnswerT],
        request: Request,
        want: RequestKind,
        deadline: float,
    ) -> AnswerT:
        """Send a request to one endpoint.

        It is sent once more only if its token was refused. The deadline is monotonic.

        Raises:
            NotAnsweredError: there was no answer.
            EtcdError: etcd refused, or the cluster has changed.
        """
        for is_last in (False, True):
            token = self.token(connection, deadline)
            known = self.guard.known
            self.count(method.name)
            left = max(deadline - time.monotonic(), 0.0)
            with connection.channel() as channel:
                try:
                    answer = channel.unary(method, request, left, metadata(token))
                except grpc.RpcError as error:
                    fault = read_fault(error, has_user=self.tokens.can_refresh)
                    if fault.kind is FaultKind.STALE_TOKEN and not is_last:
                        self.tokens.refused(token)
                        continue
                    raise self._raised(fault, want, connection, channel, left) from error
            header, name = answer.header, connection.name
            self.guard.check(header, known, name, quorum=want.quorum, revision=want.revision)
            self.ring.worked(connection)
            return answer
        raise AssertionError("the second try returns or raises")

    def _raised(
        self,
        fault: Fault,
        want: RequestKind,
        connection: Connection,
        channel: CountedChannel,
        seconds: float,
    ) -> Exception:
        if self.closed.is_set():
            return ClosedError("the etcd client was closed while it waited")
        if fault.kind is FaultKind.SILENT:
            connection.failed(channel, is_silent=fault.is_timeout)
            words = fault.words
            if fault.is_timeout:
                words = f"no answer within {round(seconds, 2):g} s"
            return NotAnsweredError(
                words, perhaps_applied=not fault.never_sent, is_refused=fault.is_refused
            )
        return refusal(fault.code, fault.words, want.doing, connection.name)

    def token(self, connection: Connection, deadline: float) -> str | None:
        """Return the token to send, after a login over this connection if needed.

        Raises:
            NotAnsweredError: no answer; the request that needs the token was not sent.
            EtcdAuth: user or password was refused.
        """

        def authenticate(request: pb.AuthenticateRequest) -> str:
            self.count(AUTHENTICATE.name)
            left = max(deadline - time.monotonic(), 0.0)
            with connection.channel() as channel:
                try:
                    return channel.unary(AUTHENTICATE, request, left, metadata(None)).token
                except grpc.RpcError as error:
                    fault = read_fault(error, has_user=False)
                    if "authentication is not enabled" in fault.words:
                        return ""
                    want = RequestKind(f"the login of user {request.name!r}")
                    raised = self._raised(fault, want, connection, channel, left)
                    if isinstance(raised, NotAnsweredError):
                        raised.perhaps_applied = False
                    raise raised from error

        try:
            return self.tokens.get(authenticate, deadline - time.monotonic())
        except TimeoutError as error:
            words = "another thread's login took too long"
            raise NotAnsweredError(words, perhaps_applied=False) from error

    def verify(self, connection: Connection, deadline: float) -> pb.ResponseHeader | None:
        """Read through a quorum at one endpoint.

        The answer shows that the endpoint can serve and is of the same cluster. The first check
        also requests the member list, which shows whether it is a grpc-proxy.

        Return the header of the answer, or None if this user may not read the key.
        """
        request = pb.RangeRequest(key=self._readable, limit=1, keys_only=True)
        want = RequestKind("a linearizable read", revision=True, quorum=True)
        header: pb.ResponseHeader | None = None
        try:
            header = self.ask(connection, RANGE, request, want, deadline).header
        except NotAnsweredError as silence:
            silence.perhaps_applied = False
            raise
        except EtcdAuth as error:
            if "permission denied" not in str(error):
                raise
            self.ring.worked(connection)
        self._refuse_proxy(connection, deadline)
        return header

    def _refuse_proxy(self, connection: Connection, deadline: float) -> None:
        """Refuse etcd's grpc-proxy, once for each endpoint.

        Most of its answers have the cluster's id, and it is not known beforehand which watch gets
        one without. But its answer with the member list never has the id.
        """
        if connection.name in self._servers:
            return
        want = RequestKind("the list of its members")
        try:
            self.ask(connection, MEMBERS, pb.MemberListRequest(), want, deadline)
        except NotAnsweredError as silence:
            silence.perhaps_applied = False
            raise
        except (EtcdClusterChanged, NoClusterIdError):
            raise
        except EtcdError:
            pass  # this user may not list the members, so the endpoint is accepted
        self._servers.add(connection.name)

    def remember_readable(self, key: bytes) -> None:
        """Remember that this user may read this key, for `verify`."""
        self._readable = key


def _list(said: dict[str, str]) -> str:
    return "; ".join(f"{name}: {words}" for name, words in said.items())


def _refused(said: dict[str, str]) -> EtcdUnavailable:
    return EtcdUnavailable(
        f"no etcd listens at {', '.join(said)}: the connection was refused. Start etcd there, or "
        f"name another address ({setting('endpoints=')} or RINK_ETCD)",
        endpoints=list(said),
    )


def metadata(token: str | None) -> Metadata:
    """Return the metadata of each request."""
    return (_HAS_LEADER, ("token", token)) if token else (_HAS_LEADER,)
