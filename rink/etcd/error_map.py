"""Turn RPC errors of gRPC and etcd into Rink's errors."""

from __future__ import annotations

import enum
import re
from typing import cast

import attrs
import grpc

from rink.errors import EtcdAuth, EtcdCompacted, EtcdError, EtcdTooLarge
from rink.etcd.setting_names import setting


class FaultKind(enum.Enum):
    """Name the consequence of an error."""

    SILENT = "no answer: try another endpoint"
    STALE_TOKEN = "the token was refused: authenticate again"  # noqa: S105 - no password
    REFUSED = "etcd answered and refused"


@attrs.frozen
class Fault:
    """Hold the meaning of one RPC error.

    Attributes:
        kind: the consequence.
        code: gRPC's status code.
        words: the message of gRPC or etcd, or Rink's explanation of it.
        never_sent: True if certainly no server received the request.
        is_refused: True if the connection was refused, since nothing listens there.
    """

    kind: FaultKind
    code: grpc.StatusCode
    words: str
    never_sent: bool
    is_refused: bool

    @property
    def is_timeout(self) -> bool:
        """Return whether this client ended the call, and not the connection."""
        return self.code in {grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


# A connection that breaks in the middle of an answer may look like UNKNOWN or INTERNAL.
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

# gRPC reports these before it gives a call to any connection. After every other failure, a
# transaction counts as "perhaps applied".
_NEVER_SENT = ("failed to connect to all addresses", "dns resolution failed")

# etcd refuses these before it proposes or applies anything. The second means that authentication
# was switched on after the connect, and the third that users or roles changed since the login.
_STALE_TOKEN = ("invalid auth token", "user name is empty", "revision of auth store is old")

_CERTIFICATE = (
    "the server's certificate was refused: {why} "
    "(check {ca}, and that the certificate names this host)"
)
_OUR_CERTIFICATE = "the server refused our client certificate: {why} (check {cert} and {key})"

# Messages of gRPC and etcd, as patterns, and their meanings. The first match counts.
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

# The limits of a transaction, of a request, and of a gRPC message (which etcd sets a bit higher).
_TOO_LARGE = ("too many operations in txn", "request is too large", "message larger than max")

# gRPC's states of TLS begin with the last one, such as TSI_DATA_CORRUPTED after the handshake. Such
# a state never occurs without TLS.
_ABOUT_TLS = ("handshake", "ssl_error", "certificate", "speak tls", "tsi_")

_AUTH = ("authentication failed", "permission denied", "authentication is not enabled")


def read_fault(error: grpc.RpcError, *, has_user: bool) -> Fault:
    """Return the meaning of gRPC's error, for a client that may log in again."""
    call = cast("grpc.Call", error)
    code, words = call.code(), call.details() or ""
    lower = words.lower()
    stale = any(text in lower for text in _STALE_TOKEN)
    if stale and has_user:
        kind = FaultKind.STALE_TOKEN
    elif code in _SILENT:
        kind = FaultKind.SILENT
    else:
        kind = FaultKind.REFUSED
    never_sent = any(text in lower for text in _NEVER_SENT)
    return Fault(
        kind,
        code,
        _meaning(words) or code.name,
        never_sent=never_sent,
        is_refused=never_sent and "connection refused" in lower,
    )


def _meaning(words: str) -> str:
    """Return the meaning of a message, or the message itself."""
    for pattern, meaning in _MEANINGS:
        if match := pattern.search(words):
            why = match.groupdict().get("why", "")
            is_an_alert = meaning is _OUR_CERTIFICATE  # such as BAD_CERTIFICATE
            why = why.replace("_", " ").lower() if is_an_alert else why
            names = {name: setting(f"{name}=") for name in ("ca", "cert", "key")}
            return meaning.format(why=why, **names)
    return words


def is_about_tls(words: str) -> bool:
    """Return whether a message reports that TLS failed, at any time."""
    lower = words.lower()
    return any(text in lower for text in _ABOUT_TLS)


def refusal(code: grpc.StatusCode, words: str, doing: str, where: str) -> EtcdError:
    """Return the error to raise after the endpoint `where` refused `doing`."""
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
