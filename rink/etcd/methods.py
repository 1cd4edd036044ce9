"""Define the calls to etcd: path, encoding of request and of answer.

They are written by hand, because generated stubs pin a version of grpcio. Also, the messages have a
protobuf package of Rink's own, while the paths are etcd's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import attrs

from rink.etcd.proto import rinketcd_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable


class Answer(Protocol):
    """An answer of etcd, which has a header."""

    @property
    def header(self) -> pb.ResponseHeader:
        """Return the header, which names the server."""
        ...


Request = TypeVar("Request")
AnswerT = TypeVar("AnswerT", bound=Answer)


@attrs.frozen
class Method(Generic[Request, AnswerT]):
    """One method of etcd; `name` is used for counts and messages."""

    name: str
    path: str
    encode: Callable[[Request], bytes]
    decode: Callable[[bytes], AnswerT]


RANGE: Method[pb.RangeRequest, pb.RangeResponse] = Method(
    "range",
    "/etcdserverpb.KV/Range",
    pb.RangeRequest.SerializeToString,
    pb.RangeResponse.FromString,
)
TXN: Method[pb.TxnRequest, pb.TxnResponse] = Method(
    "txn",
    "/etcdserverpb.KV/Txn",
    pb.TxnRequest.SerializeToString,
    pb.TxnResponse.FromString,
)
COMPACT: Method[pb.CompactionRequest, pb.CompactionResponse] = Method(
    "compact",
    "/etcdserverpb.KV/Compact",
    pb.CompactionRequest.SerializeToString,
    pb.CompactionResponse.FromString,
)
GRANT: Method[pb.LeaseGrantRequest, pb.LeaseGrantResponse] = Method(
    "grant",
    "/etcdserverpb.Lease/LeaseGrant",
    pb.LeaseGrantRequest.SerializeToString,
    pb.LeaseGrantResponse.FromString,
)
REVOKE: Method[pb.LeaseRevokeRequest, pb.LeaseRevokeResponse] = Method(
    "revoke",
    "/etcdserverpb.Lease/LeaseRevoke",
    pb.LeaseRevokeRequest.SerializeToString,
    pb.LeaseRevokeResponse.FromString,
)
TIME_TO_LIVE: Method[pb.LeaseTimeToLiveRequest, pb.LeaseTimeToLiveResponse] = Method(
    "time_to_live",
    "/etcdserverpb.Lease/LeaseTimeToLive",
    pb.LeaseTimeToLiveRequest.SerializeToString,
    pb.LeaseTimeToLiveResponse.FromString,
)
AUTHENTICATE: Method[pb.AuthenticateRequest, pb.AuthenticateResponse] = Method(
    "authenticate",
    "/etcdserverpb.Auth/Authenticate",
    pb.AuthenticateRequest.SerializeToString,
    pb.AuthenticateResponse.FromString,
)
STATUS: Method[pb.StatusRequest, pb.StatusResponse] = Method(
    "status",
    "/etcdserverpb.Maintenance/Status",
    pb.StatusRequest.SerializeToString,
    pb.StatusResponse.FromString,
)
MEMBERS: Method[pb.MemberListRequest, pb.MemberListResponse] = Method(
    "members",
    "/etcdserverpb.Cluster/MemberList",
    pb.MemberListRequest.SerializeToString,
    pb.MemberListResponse.FromString,
)
WATCH: Method[pb.WatchRequest, pb.WatchResponse] = Method(
    "watch",
    "/etcdserverpb.Watch/Watch",
    pb.WatchRequest.SerializeToString,
    pb.WatchResponse.FromString,
)
KEEPALIVE: Method[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse] = Method(
    "keepalive",
    "/etcdserverpb.Lease/LeaseKeepAlive",
    pb.LeaseKeepAliveRequest.SerializeToString,
    pb.LeaseKeepAliveResponse.FromString,
)
