"""Append records to the partitions of a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, Generic, Literal, Protocol, TypeVar

from rink.arguments import check_count, check_seconds
from rink.core.hashing import fnv1a64, jump_hash
from rink.errors import ConfigError, RinkError
from rink.streams.app_connections import Connections, OpenStore
from rink.streams.codec import Codec, JsonCodec
from rink.streams.consumer.buffer import DATA, StreamEntry
from rink.streams.dead_letter import DeadLetter
from rink.streams.errors import RecordError
from rink.streams.event import Event
from rink.streams.failure_policy import OnError
from rink.streams.hashers import Hasher, check_hasher, hashed
from rink.streams.producer.appender import Appender
from rink.streams.records.partition_keys import PartitionBy, key_function
from rink.streams.records.shapes import brief
from rink.streams.retention import Keep, check_retention
from rink.streams.store import entry_ids
from rink.streams.store.byte_limits import ByteLimits
from rink.streams.store.keys import Names
from rink.streams.store.store import Store
from rink.streams.store.values import Output, PartitionBounds

R = TypeVar("R")

MAX_PARTITION_COUNT = 10_000
_AT_ONCE = 4096
"""The most records that `send_many` collects before it sends them."""
_HOLDS_PART = 4
"""`send_many` collects 1/4 of `max_in_flight_bytes`, as client buffers hold sent records, too."""

Trim = Literal["committed", "oldest"]


@lru_cache(maxsize=65_536)
def partition_of(key: str, count: int) -> int:
    """Return the partition of a key in a stream without a hasher of its own.

    Rink gives roles to ranks with the same hash.
    """
    return jump_hash(fnv1a64(key), count)


class StreamApp(Protocol):
    """Define the parts of an app that a stream needs."""

    name: str
    connections: Connections
    limits: ByteLimits

    def _processor_names(self, stream: Stream[Any]) -> set[str]:
        """Return the names of the processors of a stream."""

    def _dead_letters(self, source: Stream[R], processor: str) -> Stream[DeadLetter[R]]:
        """Return the stream of a processor's dead letters."""


class Stream(Generic[R]):
    """Hold a stream of records in partitions; made by `App.stream`.

    Attributes:
        partition_count: the number of partitions, which never changes.
        partition_size: the most events in a partition; see `App.stream` about retention.
        trim: `committed` removes only events that every processor has passed; `oldest` drops the
            oldest events, and counts the dropped events.
        hasher: the fingerprint of its hasher; "" for the built-in one.
        retention: how long to keep events that every processor has passed; None if this program
            does not set it.
    """

    def __init__(
        self,
        app: StreamApp,
        name: str,
        *,
        record: type[R],
        partition_by: PartitionBy[R],
        partition_count: int,
        partition_size: int,
        trim: Trim,
        codec: Codec[R] | None,
        hasher: Hasher | None = None,
        keep: Keep | None = None,
        keep_bytes: int | None = None,
    ) -> None:
        if trim not in ("committed", "oldest"):
            raise ConfigError(f"trim={trim!r} is neither 'committed' nor 'oldest'")
        self.app = app
        self.name = name
        self.record = record
        self.partition_count = check_count(
            "partition_count", partition_count, most=MAX_PARTITION_COUNT
        )
        self.partition_size = check_count("partition_size", partition_size)
        self.trim = trim
        self.retention = check_retention(keep, keep_bytes)
        self.codec: Codec[R] = codec or JsonCodec(record)
        self.names = Names.of(app.name, name)
        read = self.codec.record_class if isinstance(self.codec, JsonCodec) else record
        self._key = key_function(partition_by, read)
        self._partition_by = partition_by
        self._hasher = hasher
        self.hasher = check_hasher(hasher, name, self.partition_count) if hasher else ""

    def partition_of(self, record: R) -> int:
        """Return the partition of a record.

        Raises:
            RecordError: the record has no partition key.
        """
        try:
            key = self._key(record)
        except Exception as error:
            raise RecordError(
                f"{record!r} gave no partition key of stream {self.name!r} "
                f"(partition_by={self._partition_by!r}): {type(error).__name__}: {error}"
            ) from error
        if key is None or key == "":
            raise RecordError(
                f"{record!r} has no partition key: partition_by={self._partition_by!r} of stream "
                f"{self.name!r} gave {key!r}"
            )
        try:
            return self.partition_of_key(str(key))
        except UnicodeError as error:
            raise RecordError(
                f"{record!r} has a partition key that is no text: "
                f"partition_by={self._partition_by!r} of stream "
                f"{self.name!r} gave {key!r}: {error}"
            ) from error

    def partition_of_key(self, key: str) -> int:
        """Return the partition of a key's text.

        Raises:
            RecordError: the stream's hasher gives the key no partition.
        """
        if self._hasher is None:
            return partition_of(key, self.partition_count)
        return hashed(self._hasher, key, self.partition_count)

    def output(self, record: R) -> tuple[Stream[Any], Any]:
        """Return a record with its stream, for the outputs of a commit.

        Write `events.commit([totals.output(total)])`.
        """
        return self, record

    def written(self, record: R) -> Output:
        """Return the output that writes a record with a commit.

        Raises:
            RecordError: the record does not match, or has no partition key.
        """
        names = self.names.partition(self.partition_of(record))
        return Output(names, self._bounds, ("d", self.encode(record)))

    def encode(self, record: R) -> bytes:
        """Return the bytes of a record.

        Raises:
            RecordError: the record does not match; this replaces any error of its codec.
        """
        try:
            return self.codec.encode(record)
        except RinkError:  # an error of Rink
            raise
        except Exception as error:
            raise RecordError(
                f"{brief(record)} was not sent to stream {self.name!r}: its codec raised "
                f"{type(error).__name__}: {error}"
            ) from error

    def record_of(self, data: bytes) -> R:
        """Return the record that `data` encodes.

        Raises:
            RecordError: the bytes are no record; this replaces any error of its codec.
        """
        try:
            return self.codec.decode(data)
        except RinkError:  # an error of Rink
            raise
        except Exception as error:
            raise self._not_read(data, error) from error

    def _not_read(self, data: bytes, error: Exception) -> RecordError:
        return RecordError(
            f"{brief(data)} is no record of stream {self.name!r}: its codec raised "
            f"{type(error).__name__}: {error}"
        )

    def entry_of(self, record: R) -> list[bytes]:
        """Return the entry of a record in Redis: names and values in turn."""
        return [DATA, self.encode(record)]

    def decode(self, entry: StreamEntry) -> R:
        """Return the record of an entry; raise the codec's errors."""
        return self.codec.decode(entry.data)

    @property
    def is_trimmed(self) -> bool:
        """Return whether events that all processors have passed are trimmed."""
        return True

    def on_error(self, wanted: OnError | None) -> OnError:
        """Return the policy for an event that fails too often."""
        return wanted or "dead-letter"

    def dead_letters(self, processor: str) -> Stream[DeadLetter[R]]:
        """Return the dead letters of a processor as a stream to process.

        Reading does not remove them: `rink streams requeue` and `discard` do.

        Args:
            processor: the processor's name; it may be declared later, or in another program.

        Raises:
            ConfigError: the name cannot be used, or this stream holds dead letters itself.
        """
        return self.app._dead_letters(self, processor)  # noqa: SLF001 - a part of the same package

    @property
    def _bounds(self) -> PartitionBounds:
        """Return the bounds of each partition."""
        return PartitionBounds(self.partition_size, self.trim == "oldest", self.retention)

    async def send(self, record: R, *, timeout: float = 30.0) -> str:
        """Append a record to its partition.

        It is appended once, even if it is sent again after a lost answer of Redis.

        Args:
            record: an instance of the stream's class.
            timeout: seconds to wait for room in the partition, or for Redis.

        Returns:
            The event's id.

        Raises:
            RecordError: the record does not match, or has no partition key; nothing was sent.
            PartitionFull: there was no room; nothing was sent.
            RedisUnavailable, RedisOutOfMemory: Redis did not take the record in time; it may have
                been sent.
            StateError: Redis has another number of partitions; nothing was sent.
            ClosedError: the app was closed meanwhile.
            ConfigError: the timeout is no number of seconds.
        """
        number, data = self.partition_of(record), self.encode(record)
        store, timeout = await self._ready(timeout)
        appender = self._appender(store, number)
        [event_id] = await appender.send([data], timeout, wants_ids=True)
        return event_id

    async def send_many(
        self,
        records: Iterable[R] | AsyncIterable[R],
        *,
        timeout: float = 30.0,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Append records, in their order within each partition.

        Args:
            records: any number of records; they are iterated over while they are sent.
            timeout: seconds to wait for room, or for Redis, each time.
            progress: called with the number of records that have been sent so far.

        Returns:
            The number of sent records.

        Raises:
            RecordError: as in `send`; the records before the invalid one have been sent.
            PartitionFull, RedisUnavailable, RedisOutOfMemory, ClosedError: as in `send`; some of
                the records have been sent. The same holds after a cancellation.
            StateError, ConfigError: as in `send`.
        """
        timeout = check_seconds("timeout", timeout)
        waiting: dict[int, list[bytes]] = {}
        held = size = sent = 0
        most = self.app.limits.in_flight // _HOLDS_PART
        try:
            async for record in _each(records):
                number, data = self.partition_of(record), self.encode(record)
                waiting.setdefault(number, []).append(data)
                held, size = held + 1, size + len(data)
                if held == _AT_ONCE or size >= most:
                    held, size, full, waiting = 0, 0, waiting, {}
                    sent += await self._send_all(full, timeout)
                    if progress:
                        progress(sent)
        except Exception:
            # Send the records before the invalid one. A cancellation sends nothing more.
            await self._send_all(waiting, timeout)
            raise
        sent += await self._send_all(waiting, timeout)
        if progress:
            progress(sent)
        return sent

    async def _send_all(self, waiting: Mapping[int, list[bytes]], timeout: float) -> int:
        if not waiting:
            return 0
        store, timeout = await self._ready(timeout)
        sends = [
            self._appender(store, number).send(data, timeout) for number, data in waiting.items()
        ]
        for ended in await asyncio.gather(*sends, return_exceptions=True):
            if isinstance(ended, BaseException):
                raise ended
        return sum(len(data) for data in waiting.values())

    def _appender(self, store: OpenStore, number: int) -> Appender:
        return store.appender(self.name, number, self.names, self._bounds)

    async def _settle(self, store: Store) -> None:
        """Raise a StateError if Redis has other partitions or another hasher."""
        await store.settle_count(self.names, self.name, self.partition_count, self.hasher)

    async def _ready(self, timeout: float) -> tuple[OpenStore, float]:
        """Return the open store, and the seconds left of the timeout."""
        timeout = check_seconds("timeout", timeout)
        opened, count = self.app.connections.already_open(), self.partition_count
        if opened is not None and opened.store.has_settled(self.names, count, self.hasher):
            return opened, timeout
        return await self.app.connections.reach(f"stream {self.name!r}", self._settle, timeout)

    async def read(self, partition: int, *, after: str = entry_ids.NONE) -> AsyncIterator[Event[R]]:
        """Read the present events of a partition, in order.

        Use it to read back state that a processor keeps in its outputs.

        Args:
            partition: 0 to `partition_count` - 1.
            after: the id of the event to begin behind.

        Raises:
            RecordError: an event does not decode.
            RedisUnavailable: Redis does not answer.
        """
        key = self.names.partition(partition).stream
        store = (await self.app.connections.open()).store
        async for entry_id, fields in store.entries(key, after):
            entry = StreamEntry(entry_id.decode(), fields.get(DATA, b""), fields=fields)
            try:
                record = self.decode(entry)
            except RinkError:  # an error of Rink
                raise
            except Exception as error:
                raise self._not_read(entry.data, error) from error
            yield Event(entry.id, record)

    def send_blocking(self, record: R, *, timeout: float = 30.0) -> str:
        """Send like `send`, for plain scripts and threads."""
        return self.app.connections.run_blocking(self.send(record, timeout=timeout))

    def send_many_blocking(
        self,
        records: Iterable[R],
        *,
        timeout: float = 30.0,
        progress: Callable[[int], object] | None = None,
    ) -> int:
        """Send like `send_many`, for plain scripts and threads."""
        return self.app.connections.run_blocking(
            self.send_many(records, timeout=timeout, progress=progress)
        )

    def __repr__(self) -> str:
        return f"<Stream {self.name!r} of {self.app.name!r}>"


def partition_bounds(stream: Stream[Any]) -> PartitionBounds:
    """Return the bounds of each partition of a stream."""
    return stream._bounds  # noqa: SLF001 - a part of the same package


async def settle(stream: Stream[Any], store: Store) -> None:
    """Check that Redis has the partitions and the hasher of a stream.

    Raises:
        StateError: Redis has others.
        ConfigError: the stream holds dead letters of a processor that nobody knows.
    """
    await stream._settle(store)  # noqa: SLF001 - a part of the same package


async def _each(records: Iterable[R] | AsyncIterable[R]) -> Any:
    if isinstance(records, AsyncIterable):
        async for record in records:
            yield record
    else:
        for record in records:
            yield record
