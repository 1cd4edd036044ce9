"""Share calls to an in-memory etcd, and reads of delivered messages."""

from __future__ import annotations

from rink.etcd.api import Put


def put(etcd, key, value=b"", lease=0):
    return etcd.txn((), (Put(key, value, lease),)).header.revision


def keys(etcd):
    return [kv.key for kv in etcd.range(b"\0", b"\0").kvs]


def taken(seen):
    """Return the messages delivered so far."""
    messages = []
    while not seen.queue.empty():
        messages.append(seen.queue.get())
    return messages


def revisions(seen):
    return [event.kv.mod_revision for message in taken(seen) for event in message.events]
