"""Convert between etcd's messages and the values of `rink.etcd.api`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rink.etcd import api
from rink.etcd.proto import rinketcd_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable


def to_header(header: pb.ResponseHeader) -> api.Header:
    """Return the header of an answer."""
    return api.Header(header.cluster_id, header.member_id, header.revision, header.raft_term)


def to_key_value(kv: pb.KeyValue) -> api.KeyValue:
    """Return one key."""
    return api.KeyValue(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def to_event(event: pb.Event) -> api.KeyChange:
    """Return one change."""
    return api.KeyChange(to_key_value(event.kv), deleted=event.type == pb.Event.DELETE)


def to_txn_result(answer: pb.TxnResponse) -> api.TxnResult:
    """Return an answered transaction."""
    return api.TxnResult(
        to_header(answer.header),
        answer.succeeded,
        tuple(tuple(to_key_value(kv) for kv in op.response_range.kvs) for op in answer.responses),
    )


def from_txn(
    compare: Iterable[api.Compare], then: Iterable[api.Op], otherwise: Iterable[api.Op]
) -> pb.TxnRequest:
    """Return etcd's message of a transaction."""
    return pb.TxnRequest(
        compare=[_from_compare(guard) for guard in compare],
        success=[_from_op(op) for op in then],
        failure=[_from_op(op) for op in otherwise],
    )


def _from_compare(compare: api.Compare) -> pb.Compare:
    message = pb.Compare(
        result=pb.Compare.LESS if compare.is_below else pb.Compare.EQUAL,
        key=compare.key,
        range_end=compare.range_end,
    )
    match compare.target:  # a number in a oneof is sent even if it is 0
        case api.TxnTarget.VERSION:
            message.target, message.version = pb.Compare.VERSION, compare.value
        case api.TxnTarget.CREATE:
            message.target, message.create_revision = pb.Compare.CREATE, compare.value
        case api.TxnTarget.MOD:
            message.target, message.mod_revision = pb.Compare.MOD, compare.value
    return message


def _from_op(op: api.Op) -> pb.RequestOp:
    match op:
        case api.Put(key, value, lease):
            return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))
        case api.Get(key, range_end):
            return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=range_end))
        case api.Delete(key, range_end):
            return pb.RequestOp(
                request_delete_range=pb.DeleteRangeRequest(key=key, range_end=range_end)
            )
