"""Redis Streams with partitions that each have one owner: ordered, fenced, sticky.

    app = App("shop")
    orders = app.stream("orders", record=Order, partition_by="customer")

    @app.processor(orders)
    async def bill(events):
        async for order in events.records():
            ...

`rink worker shop:app` runs it. See docs/streams.md.
"""

from typing import TYPE_CHECKING

from rink.lazily import named

if TYPE_CHECKING:
    from rink.streams.app import App
    from rink.streams.codec import Codec, JsonCodec
    from rink.streams.dead import DeadLetter
    from rink.streams.errors import (
        CrossSlot,
        EventTimeout,
        PartitionFull,
        RecordError,
        RedisAuth,
        RedisError,
        RedisOutOfMemory,
        RedisRolledBack,
        RedisUnavailable,
        TooManyUncommitted,
        WorkerHalted,
    )
    from rink.streams.event import Event
    from rink.streams.events import Batches, Events, Middleware
    from rink.streams.hooks import OwnedPartition
    from rink.streams.msgspec_codec import MsgspecCodec
    from rink.streams.policy import OnError, Policy
    from rink.streams.processor import Processor
    from rink.streams.record import Record
    from rink.streams.stream import Stream, partition_of
    from rink.streams.threads import BlockingBatches, BlockingEvents
    from rink.streams.transient import TRANSIENT
    from rink.streams.worker import Worker
else:
    # An app is declared without what its workers need.
    _HOMES = {
        "App": "rink.streams.app",
        "Batches": "rink.streams.events",
        "BlockingBatches": "rink.streams.threads",
        "BlockingEvents": "rink.streams.threads",
        "Codec": "rink.streams.codec",
        "CrossSlot": "rink.streams.errors",
        "DeadLetter": "rink.streams.dead",
        "Event": "rink.streams.event",
        "EventTimeout": "rink.streams.errors",
        "Events": "rink.streams.events",
        "TooManyUncommitted": "rink.streams.errors",
        "JsonCodec": "rink.streams.codec",
        "Middleware": "rink.streams.events",
        "MsgspecCodec": "rink.streams.msgspec_codec",
        "OnError": "rink.streams.policy",
        "OwnedPartition": "rink.streams.hooks",
        "PartitionFull": "rink.streams.errors",
        "Policy": "rink.streams.policy",
        "Processor": "rink.streams.processor",
        "Record": "rink.streams.record",
        "RecordError": "rink.streams.errors",
        "RedisAuth": "rink.streams.errors",
        "RedisError": "rink.streams.errors",
        "RedisOutOfMemory": "rink.streams.errors",
        "RedisUnavailable": "rink.streams.errors",
        "Stream": "rink.streams.stream",
        "TRANSIENT": "rink.streams.transient",
        "RedisRolledBack": "rink.streams.errors",
        "Worker": "rink.streams.worker",
        "WorkerHalted": "rink.streams.errors",
        "partition_of": "rink.streams.stream",
    }
    _EXTRAS = dict.fromkeys(_HOMES.values(), "streams")
    _EXTRAS["rink.streams.msgspec_codec"] = "streams,msgspec"
    __getattr__, __dir__ = named(__name__, _HOMES, extra=_EXTRAS)

__all__ = [
    "TRANSIENT",
    "App",
    "Batches",
    "BlockingBatches",
    "BlockingEvents",
    "Codec",
    "CrossSlot",
    "DeadLetter",
    "Event",
    "EventTimeout",
    "Events",
    "JsonCodec",
    "Middleware",
    "MsgspecCodec",
    "OnError",
    "OwnedPartition",
    "PartitionFull",
    "Policy",
    "Processor",
    "Record",
    "RecordError",
    "RedisAuth",
    "RedisError",
    "RedisOutOfMemory",
    "RedisRolledBack",
    "RedisUnavailable",
    "Stream",
    "TooManyUncommitted",
    "Worker",
    "WorkerHalted",
    "partition_of",
]  # fmt: skip
