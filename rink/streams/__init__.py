"""Process Redis Streams in order, with one fenced owner per partition.

    app = App("shop")
    orders = app.stream("orders", record=Order, partition_by="customer")

    @app.processor(orders)
    async def bill(events):
        async for order in events.records():
            ...

`rink worker shop:app` runs it. See docs/streams.md.
"""

from typing import TYPE_CHECKING

from rink._lazy import named

if TYPE_CHECKING:
    from rink.redis.errors import (
        CrossSlot,
        RedisAuth,
        RedisError,
        RedisOutOfMemory,
        RedisUnavailable,
    )
    from rink.streams.app import App
    from rink.streams.codec import Codec, JsonCodec
    from rink.streams.consumer.thread_bridge import BlockingBatches, BlockingEvents
    from rink.streams.consumer.worker import Worker
    from rink.streams.dead_letter import DeadLetter
    from rink.streams.errors import (
        EventTimeout,
        PartitionFull,
        RecordError,
        RedisRolledBack,
        TooManyUncommitted,
        WorkerHalted,
    )
    from rink.streams.event import Event, Middleware
    from rink.streams.failure_policy import OnError, Policy
    from rink.streams.hooks import OwnedPartition
    from rink.streams.msgspec_codec import MsgspecCodec
    from rink.streams.processor import Processor
    from rink.streams.processor_events import Batches, Events
    from rink.streams.record import Record
    from rink.streams.stream import Stream, partition_of
    from rink.streams.transient_errors import TRANSIENT
else:
    # Lazy imports: a program that only declares an app does not load what workers need.
    _NAMES = {
        "rink.redis.errors": [
            "CrossSlot", "RedisAuth", "RedisError", "RedisOutOfMemory", "RedisUnavailable",
        ],
        "rink.streams.app": ["App"],
        "rink.streams.codec": ["Codec", "JsonCodec"],
        "rink.streams.consumer.thread_bridge": ["BlockingBatches", "BlockingEvents"],
        "rink.streams.consumer.worker": ["Worker"],
        "rink.streams.dead_letter": ["DeadLetter"],
        "rink.streams.errors": [
            "EventTimeout", "PartitionFull", "RecordError", "RedisRolledBack", "TooManyUncommitted",
            "WorkerHalted",
        ],
        "rink.streams.event": ["Event", "Middleware"],
        "rink.streams.failure_policy": ["OnError", "Policy"],
        "rink.streams.hooks": ["OwnedPartition"],
        "rink.streams.msgspec_codec": ["MsgspecCodec"],
        "rink.streams.processor": ["Processor"],
        "rink.streams.processor_events": ["Batches", "Events"],
        "rink.streams.record": ["Record"],
        "rink.streams.stream": ["Stream", "partition_of"],
        "rink.streams.transient_errors": ["TRANSIENT"],
    }  # fmt: skip
    _HOMES = {name: module for module, names in _NAMES.items() for name in names}
    _EXTRAS = dict.fromkeys(_HOMES.values(), "streams")
    _EXTRAS["rink.streams.msgspec_codec"] = "streams,msgspec"
    __getattr__, __dir__ = named(__name__, _HOMES, extra=_EXTRAS)

__all__ = [
    "TRANSIENT", "App", "Batches", "BlockingBatches", "BlockingEvents", "Codec", "CrossSlot",
    "DeadLetter", "Event", "EventTimeout", "Events", "JsonCodec", "Middleware", "MsgspecCodec",
    "OnError", "OwnedPartition", "PartitionFull", "Policy", "Processor", "Record", "RecordError",
    "RedisAuth", "RedisError", "RedisOutOfMemory", "RedisRolledBack", "RedisUnavailable", "Stream",
    "TooManyUncommitted", "Worker", "WorkerHalted", "partition_of",
]  # fmt: skip
