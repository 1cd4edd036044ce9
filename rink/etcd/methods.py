"""The calls that Rink makes on etcd: path, how to write the request, how to read the answer.

Written by hand, since generated stubs pin a version of grpcio, and since the messages live in a
package of our own while the paths are etcd's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

import attrs

from rink.etcd.proto import rinketcd_pb2 as pb


class Answer(Protocol):
    """Every answer of etcd says who gave it."""

    @property
    def header(self) -> pb.ResponseHeader:
        """Who answered."""
        ...


Request = TypeVar("Request")
AnswerT = TypeVar("AnswerT", bound=Answer)


@attrs.frozen
class Method(Generic[Request, AnswerT]):
    """One method of etcd's; `name` is how it is counted and shown."""

    name: str
    path: str
    encode: Callable[[Request], bytes]
    decode: Callable[[bytes], AnswerT]


RANGE = Method(
    "range",
    "/etcdserverpb.KV/Range",
    pb.RangeRequest.SerializeToString,
    pb.RangeResponse.FromString,
)
TXN = Method(
    "txn",
    "/etcdserverpb.KV/Txn",
    pb.TxnRequest.SerializeToString,
    pb.TxnResponse.FromString,
)
COMPACT = Method(
    "compact",
    "/etcdserverpb.KV/Compact",
    pb.CompactionRequest.SerializeToString,
    pb.CompactionResponse.FromString,
)
GRANT = Method(
    "grant",
    "/etcdserverpb.Lease/LeaseGrant",
    pb.LeaseGrantRequest.SerializeToString,
    pb.LeaseGrantResponse.FromString,
)
REVOKE = Method(
    "revoke",
    "/etcdserverpb.Lease/LeaseRevoke",
    pb.LeaseRevokeRequest.SerializeToString,
    pb.LeaseRevokeResponse.FromString,
)
TIME_TO_LIVE = Method(
    "time_to_live",
    "/etcdserverpb.Lease/LeaseTimeToLive",
    pb.LeaseTimeToLiveRequest.SerializeToString,
    pb.LeaseTimeToLiveResponse.FromString,
)
AUTHENTICATE = Method(
    "authenticate",
    "/etcdserverpb.Auth/Authenticate",
    pb.AuthenticateRequest.SerializeToString,
    pb.AuthenticateResponse.FromString,
)
STATUS = Method(
    "status",
    "/etcdserverpb.Maintenance/Status",
    pb.StatusRequest.SerializeToString,
    pb.StatusResponse.FromString,
)
WATCH = Method(
    "watch",
    "/etcdserverpb.Watch/Watch",
    pb.WatchRequest.SerializeToString,
    pb.WatchResponse.FromString,
)
KEEPALIVE = Method(
    "keepalive",
    "/etcdserverpb.Lease/LeaseKeepAlive",
    pb.LeaseKeepAliveRequest.SerializeToString,
    pb.LeaseKeepAliveResponse.FromString,
)
