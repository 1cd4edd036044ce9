"""What an RPC error of gRPC or etcd means for us."""

from __future__ import annotations

import enum
import re
from typing import cast

import attrs
import grpc

from rink.errors import EtcdAuth, EtcdCompacted, EtcdError, EtcdTooLarge
from rink.etcd.setting_names import setting


class Kind(enum.Enum):
    """What follows from an error."""

    SILENT = "no answer: elsewhere it may be given"
    STALE_TOKEN = "refused for its token: authenticate again"  # noqa: S105 - no password
    REFUSED = "an answer, and it is no"


@attrs.frozen
class Fault:
    """One RPC error, read.

    Attributes:
        kind: what follows from it.
        code: gRPC's status code.
        words: what gRPC or etcd said, or in our words what it means.
        never_sent: it is certain that no server saw the request.
        is_refused: nothing listens there: the connection was refused.
    """

    kind: Kind
    code: grpc.StatusCode
    words: str
    never_sent: bool
    is_refused: bool

    @property
    def is_timeout(self) -> bool:
        """Return whether we ended the call, and not the connection."""
        return self.code in {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


# UNKNOWN and INTERNAL are what a connection that breaks in the middle of an answer may look like.
_SILENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.ABORTED,
    }
)

# gRPC says these before a call is given to any connection. Every other failure of a transaction
# counts as "perhaps applied".
_NEVER_SENT = ("failed to connect to all addresses", "dns resolution failed")

# etcd refuses these before anything is proposed or applied. The second: authentication was
# switched on after we connected. The third: users or roles changed since the token was given.
_STALE_TOKEN = ("invalid auth token", "user name is empty", "revision of auth store is old")

_CERTIFICATE = (
    "the server's certificate was refused: {why} "
    "(check {ca}, and that the certificate names this host)"
)
_OUR_CERTIFICATE = "the server refused our client certificate: {why} (check {cert} and {key})"

# What gRPC and etcd say, as a pattern, and what it means. The first that fits is taken.
_MEANINGS = [
    (re.compile(pattern, re.IGNORECASE), meaning)
    for pattern, meaning in (
        (r"wrong_version_number", "the server does not speak TLS (use http://)"),
        (r"certificate_verify_failed: (?P<why>.+?)(: ok)?$", _CERTIFICATE),
        (r"alert_(?P<why>bad_certificate|unknown_ca|certificate_\w+)", _OUR_CERTIFICATE),
        (r"ipv[46]:(?P<why>[^ ]+): .*connection refused", "connection refused by {why}"),
        (r"etcdserver: no leader", "etcd has no leader: are most of its nodes up?"),
        (
            r"etcdserver: request timed out|context deadline exceeded",
            "etcd could not answer in time: are most of its nodes up?",
        ),
    )
]

# Limits on a transaction, on a request, and on a gRPC message (etcd sets that a little higher).
_TOO_LARGE = ("too many operations in txn", "request is too large", "message larger than max")

# The last is how gRPC names the states of TLS, such as TSI_DATA_CORRUPTED after the handshake.
# Without TLS, gRPC protects no frames, and has no such state.
_ABOUT_TLS = ("handshake", "ssl_error", "certificate", "speak tls", "tsi_")

_AUTH = ("authentication failed", "permission denied", "authentication is not enabled")


def read_fault(error: grpc.RpcError, *, has_user: bool) -> Fault:
    """Read an error of a call.

    Args:
        error: as raised by gRPC.
        has_user: we can authenticate again.
    """
    call = cast("grpc.Call", error)
    code, words = call.code(), call.details() or ""
    lower = words.lower()
    stale = any(text in lower for text in _STALE_TOKEN)
    if stale and has_user:
        kind = Kind.STALE_TOKEN
    elif code in _SILENT:
        kind = Kind.SILENT
    else:
        kind = Kind.REFUSED
    never_sent = any(text in lower for text in _NEVER_SENT)
    return Fault(
        kind,
        code,
        _meaning(words) or code.name,
        never_sent=never_sent,
        is_refused=never_sent and "connection refused" in lower,
    )


def _meaning(words: str) -> str:
    """Return what these words mean, or the words themselves."""
    for pattern, meaning in _MEANINGS:
        if found := pattern.search(words):
            why = found.groupdict().get("why", "")
            is_an_alert = meaning is _OUR_CERTIFICATE  # such as BAD_CERTIFICATE
            why = why.replace("_", " ").lower() if is_an_alert else why
            names = {name: setting(f"{name}=") for name in ("ca", "cert", "key")}
            return meaning.format(why=why, **names)
    return words


def is_about_tls(words: str) -> bool:
    """Return whether the words describe TLS that failed.

    It fails in the handshake or after it.
    """
    lower = words.lower()
    return any(text in lower for text in _ABOUT_TLS)


def refusal(code: grpc.StatusCode, words: str, doing: str, where: str) -> EtcdError:
    """Return the error to raise for etcd's "no".

    Args:
        code: gRPC's status code.
        words: what etcd said.
        doing: what was asked for, such as `txn on b'rink/a'`.
        where: the endpoint.
    """
    lower = words.lower()
    message = f"etcd at {where} refused {doing}: {words}"
    if "has been compacted" in lower:
        return EtcdCompacted(message, endpoints=[where])
    auth_codes = {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}
    if code in auth_codes or any(text in lower for text in (*_AUTH, *_STALE_TOKEN)):
        return EtcdAuth(f"{message}{_auth_advice(lower)}", endpoints=[where])
    if any(text in lower for text in _TOO_LARGE):
        message += " (see etcd's --max-txn-ops and --max-request-bytes)"
        return EtcdTooLarge(message, endpoints=[where])
    if "database space exceeded" in lower:
        message += " (compact, defragment and disarm the alarm; see etcd's --quota-backend-bytes)"
    return EtcdError(message, endpoints=[where])


def _auth_advice(lower: str) -> str:
    if "user name is empty" in lower:
        return f" (this cluster wants {setting('user=')} and {setting('password=')})"
    if "permission denied" in lower:
        return " (grant the user's role readwrite on the prefix)"
    if "invalid user id or password" in lower:
        return f" (check {setting('user')} and {setting('password')})"
    return ""
