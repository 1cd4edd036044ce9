"""Redis Streams with partitions that each have one owner: ordered, fenced, sticky.

    app = App("shop")
    orders = app.stream("orders", record=Order, partition_by="customer")

    @app.processor(orders)
    async def bill(events):
        async for order in events.records():
            ...

`rink worker shop:app` runs it. See docs/streams.md.
"""

from rink.streams.app import App
from rink.streams.codec import Codec, JsonCodec
from rink.streams.errors import (
    CrossSlot,
    EventsHeld,
    PartitionFull,
    RecordError,
    RedisAuth,
    RedisError,
    RedisFull,
    RedisUnavailable,
    WentBack,
    WorkerHalted,
)
from rink.streams.event import Event
from rink.streams.events import Batches, Events, Middleware
from rink.streams.policy import OnError, Policy
from rink.streams.processor import Processor
from rink.streams.record import Record
from rink.streams.stream import Stream, partition_of
from rink.streams.threads import BlockingBatches, BlockingEvents
from rink.streams.worker import Worker

__all__ = [
    "App", "Batches", "BlockingBatches", "BlockingEvents", "Codec", "CrossSlot", "Event", "Events",
    "EventsHeld", "JsonCodec", "Middleware", "OnError", "PartitionFull", "Policy", "Processor",
    "Record", "RecordError", "RedisAuth", "RedisError", "RedisFull", "RedisUnavailable", "Stream",
    "WentBack", "Worker", "WorkerHalted", "partition_of",
]  # fmt: skip
