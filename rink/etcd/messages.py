"""Convert between etcd's messages and the values of `rink.etcd.api`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rink.etcd.api import (
    Compare,
    Delete,
    Get,
    Header,
    KeyChange,
    KeyValue,
    Op,
    Put,
    TxnResult,
    TxnTarget,
)
from rink.etcd.proto import rinketcd_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable


def to_header(header: pb.ResponseHeader) -> Header:
    """Return the header of an answer."""
    return Header(header.cluster_id, header.member_id, header.revision, header.raft_term)


def to_key_value(kv: pb.KeyValue) -> KeyValue:
    """Return one key."""
    return KeyValue(kv.key, kv.value, kv.create_revision, kv.mod_revision, kv.version, kv.lease)


def to_event(event: pb.Event) -> KeyChange:
    """Return one change."""
    return KeyChange(to_key_value(event.kv), deleted=event.type == pb.Event.DELETE)


def to_txn_result(answer: pb.TxnResponse) -> TxnResult:
    """Return an answered transaction."""
    return TxnResult(
        to_header(answer.header),
        answer.succeeded,
        tuple(tuple(to_key_value(kv) for kv in one.response_range.kvs) for one in answer.responses),
    )


def from_txn(
    compare: Iterable[Compare], then: Iterable[Op], otherwise: Iterable[Op]
) -> pb.TxnRequest:
    """Return etcd's message of a transaction."""
    return pb.TxnRequest(
        compare=[_from_compare(guard) for guard in compare],
        success=[_from_op(op) for op in then],
        failure=[_from_op(op) for op in otherwise],
    )


def _from_compare(compare: Compare) -> pb.Compare:
    message = pb.Compare(
        result=pb.Compare.LESS if compare.is_below else pb.Compare.EQUAL,
        key=compare.key,
        range_end=compare.range_end,
    )
    match compare.target:  # a number in a oneof is sent even if it is 0
        case TxnTarget.VERSION:
            message.target, message.version = pb.Compare.VERSION, compare.value
        case TxnTarget.CREATE:
            message.target, message.create_revision = pb.Compare.CREATE, compare.value
        case TxnTarget.MOD:
            message.target, message.mod_revision = pb.Compare.MOD, compare.value
    return message


def _from_op(op: Op) -> pb.RequestOp:
    match op:
        case Put(key, value, lease):
            return pb.RequestOp(request_put=pb.PutRequest(key=key, value=value, lease=lease))
        case Get(key, range_end):
            return pb.RequestOp(request_range=pb.RangeRequest(key=key, range_end=range_end))
        case Delete(key, range_end):
            return pb.RequestOp(
                request_delete_range=pb.DeleteRangeRequest(key=key, range_end=range_end)
            )
