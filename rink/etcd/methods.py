"""Define the calls to etcd: path, encoding of request and of answer.

They are written by hand, because generated stubs pin a version of grpcio. Also, the messages have a
protobuf package of Rink's own, while the paths are etcd's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

import attrs
from google.protobuf.message import Message

from rink.etcd.proto import rinketcd_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable


class Answer(Protocol):
    """Describe an answer of etcd, which has a header."""

    @property
    def header(self) -> pb.ResponseHeader:
        """Return the header, which names the server."""

    @classmethod
    def FromString(cls, s: bytes, /) -> Self:  # noqa: N802 - protobuf's name
        """Decode an answer."""


Request = TypeVar("Request", bound=Message)
AnswerT = TypeVar("AnswerT", bound=Answer)


@attrs.frozen
class Method(Generic[Request, AnswerT]):
    """Describe one method of etcd; `name` is for counts and messages."""

    name: str
    path: str
    encode: Callable[[Request], bytes]
    decode: Callable[[bytes], AnswerT]


def _method(
    name: str, path: str, request: type[Request], answer: type[AnswerT]
) -> Method[Request, AnswerT]:
    path = f"/etcdserverpb.{path}"
    return Method(name, path, request.SerializeToString, answer.FromString)


RANGE = _method("range", "KV/Range", pb.RangeRequest, pb.RangeResponse)
TXN = _method("txn", "KV/Txn", pb.TxnRequest, pb.TxnResponse)
COMPACT = _method("compact", "KV/Compact", pb.CompactionRequest, pb.CompactionResponse)
GRANT = _method("grant", "Lease/LeaseGrant", pb.LeaseGrantRequest, pb.LeaseGrantResponse)
REVOKE = _method("revoke", "Lease/LeaseRevoke", pb.LeaseRevokeRequest, pb.LeaseRevokeResponse)
TIME_TO_LIVE = _method(
    "time_to_live", "Lease/LeaseTimeToLive", pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse
)
AUTHENTICATE = _method(
    "authenticate", "Auth/Authenticate", pb.AuthenticateRequest, pb.AuthenticateResponse
)
STATUS = _method("status", "Maintenance/Status", pb.StatusRequest, pb.StatusResponse)
MEMBERS = _method("members", "Cluster/MemberList", pb.MemberListRequest, pb.MemberListResponse)
WATCH = _method("watch", "Watch/Watch", pb.WatchRequest, pb.WatchResponse)
KEEPALIVE = _method(
    "keepalive", "Lease/LeaseKeepAlive", pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse
)
