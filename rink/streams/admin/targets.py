"""Find the partitions that an operator selects.

They may belong to processors of the app, or to processors that only Redis knows.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from rink.core.wording import some
from rink.errors import ConfigError
from rink.redis.error_map import explained
from rink.redis.errors import RedisUnavailable
from rink.streams.store.keys import OF_SPARK
from rink.streams.store.store import Store
from rink.streams.store.values import PartitionPlace
from rink.streams.stream import Stream, partition_bounds

if TYPE_CHECKING:
    from rink.streams.app import App

T = TypeVar("T")
V = TypeVar("V")

MAX_REQUESTS = 16
"""The most requests at a time, since each has a connection of its own."""


@attrs.frozen
class ProcessorPartition:
    """Hold one partition as one processor's place, with all offsets.

    Attributes:
        stream: the stream of the app.
        place: the processor's place, even if the app does not declare the processor.
        offsets: the offset of each registered processor, by name.
        declared: the app has this processor.
    """

    stream: Stream[Any]
    place: PartitionPlace
    offsets: dict[str, str]
    declared: bool

    @property
    def row(self) -> dict[str, Any]:
        """Return the fields of `Row`."""
        place = self.place
        return {
            "processor": place.processor, "stream": place.stream, "partition": place.number,
        }  # fmt: skip


@attrs.frozen(kw_only=True)
class Row:
    """Hold the result for one processor in one partition."""

    processor: str
    stream: str
    partition: int


async def each(request: Callable[[T], Awaitable[V]], items: Iterable[T]) -> list[V]:
    """Send a request for each item, a few at a time.

    The first error ends all requests.
    """
    gate = asyncio.Semaphore(MAX_REQUESTS)

    async def send(item: T) -> V:
        async with gate:
            return await request(item)

    tasks = [asyncio.ensure_future(send(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def change(
    request: Callable[[ProcessorPartition], Awaitable[V | None]],
    targets: Iterable[ProcessorPartition],
) -> tuple[V, ...]:
    """Change each target, a few at a time.

    After an error the other targets are still changed. Only if Redis is unavailable, no more
    requests are sent.

    Returns:
        The results except None, which means that there was nothing to change.

    Raises:
        RinkError: the first error. Its note names the targets that were changed, and the targets
            that may have been.
    """
    places, unavailable = list(targets), asyncio.Event()

    async def send(place: ProcessorPartition) -> V | Exception | None:
        if unavailable.is_set():
            return None
        try:
            return await request(place)
        except RedisUnavailable as error:
            unavailable.set()
            return error
        except Exception as error:
            return error

    answers = await each(send, places)
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    if errors:
        errors[0].add_note(_note(places, answers))
        raise errors[0]
    return tuple(
        answer for answer in answers if answer is not None and not isinstance(answer, Exception)
    )


def _note(places: Sequence[ProcessorPartition], answers: Sequence[Any]) -> str:
    names = [f"{item.place.processor} {item.place.role}" for item in places]
    pairs = list(zip(names, answers, strict=True))
    done = [name for name, answer in pairs if not isinstance(answer, Exception | None)]
    unsure = [name for name, answer in pairs if isinstance(answer, RedisUnavailable)]
    parts = [f"changed: {some(done)}"] if done else []
    parts += [f"maybe changed: {some(unsure)}"] if unsure else []
    return "; ".join(parts) or "nothing was changed"


def check_not_sparks(app: App, processor: str) -> None:
    """Refuse to move the offset of a Spark query.

    The offset is in the query's checkpoint.
    """
    if processor.startswith(OF_SPARK) and processor not in app.processors:
        raise ConfigError(
            f"{processor!r} is a query of Spark, whose checkpoint has its offsets: it would undo a "
            "change here. Stop it, delete its checkpoint and forget its group "
            f"(`rink streams forget-group MODULE:ATTR {shlex.quote(processor)}`), or start it with "
            "another group and a new checkpoint. Its option startingOffsets says where it then "
            "begins"
        )


async def store_of(app: App) -> Store:
    """Return the app's open store."""
    return (await app.connections.open()).store


async def read(store: Store, key: str, request: Callable[[Any], Awaitable[Any]]) -> Any:
    """Send one command to Redis; raise errors of Rink."""
    with explained(store.server, key):
        return await request(store.redis)


async def find(
    app: App,
    *,
    processor: str | None = None,
    stream: str | None = None,
    partition: int | None = None,
    gone: bool = False,
) -> list[ProcessorPartition]:
    """Return the places that a processor, stream and partition select.

    The processor may be one that only Redis knows. With `gone`, it may be a forgotten processor
    that has left dead letters.

    Raises:
        ConfigError: there is no such processor, stream or partition.
        StateError: Redis has another number of partitions than the app.
        RedisError: a call to Redis failed.
    """
    # Every filter must name something that exists, so that a typing error is no empty result. A
    # processor that is unknown in all wanted partitions may still have dead letters, which stay
    # when it is forgotten. They are searched for last, since that costs a request per partition.
    store, streams = await store_of(app), _streams(app, stream)
    for each_stream in streams:
        # Check only: unlike a worker, an operator's command must not settle the count.
        count, hasher = each_stream.partition_count, each_stream.hasher
        await store.check_count(each_stream.names, each_stream.name, count, hasher)
    wanted = [
        (each_stream, number)
        for each_stream in streams
        for number in _numbers(each_stream, partition)
    ]
    pages = await each(lambda at: _found(app, *at), wanted)
    places = [item for page in pages for item in page]
    if partition is not None and not wanted:
        count = max((each_stream.partition_count for each_stream in streams), default=0)
        raise ConfigError(f"there is no partition {partition}: they are 0 to {count - 1}")
    chosen = [item for item in places if processor in (None, item.place.processor)]
    if processor is not None and not chosen:
        if gone:
            chosen = await _with_letters(app, wanted, processor)
        if not chosen:
            raise _unknown(app, processor, stream, {item.place.processor for item in places})
    return sorted(
        chosen,
        key=lambda item: (item.place.stream, item.place.processor, item.place.number),
    )


async def _with_letters(
    app: App, wanted: Iterable[tuple[Stream[Any], int]], processor: str
) -> list[ProcessorPartition]:
    """Return the places of a forgotten processor with dead letters."""
    store = await store_of(app)

    async def look(at: tuple[Stream[Any], int]) -> list[ProcessorPartition]:
        place = _undeclared(*at, processor)
        key = place.names.dead(processor)
        exists = await read(store, key, lambda redis: redis.exists(key))
        return [ProcessorPartition(at[0], place, {}, declared=False)] if exists else []

    return [item for places in await each(look, wanted) for item in places]


def _streams(app: App, stream: str | None) -> list[Stream[Any]]:
    if stream is None:
        return list(app.streams.values())
    if stream not in app.streams:
        raise ConfigError(
            f"app {app.name!r} has no stream {stream!r}; it has {sorted(app.streams)}"
        )
    return [app.streams[stream]]


def _numbers(stream: Stream[Any], partition: int | None) -> Iterable[int]:
    numbers = range(stream.partition_count)
    if partition is None:
        return numbers
    return [partition] if partition in numbers else []


async def _found(app: App, stream: Stream[Any], number: int) -> list[ProcessorPartition]:
    store = await store_of(app)
    names = stream.names.partition(number)
    offsets = await store.registered(names)
    declared = {
        processor.name: processor
        for processor in app.processors.values()
        if processor.stream is stream
    }
    return [
        ProcessorPartition(
            stream,
            declared[name].place(number) if name in declared else _undeclared(stream, number, name),
            offsets,
            name in declared,
        )
        for name in {**declared, **offsets}
    ]


def _undeclared(stream: Stream[Any], number: int, processor: str) -> PartitionPlace:
    """Return the place of a processor that the app does not declare."""
    return PartitionPlace(
        stream.name, number, stream.names.partition(number), processor, partition_bounds(stream)
    )


def _unknown(app: App, processor: str, stream: str | None, known: set[str]) -> ConfigError:
    of = f" of stream {stream!r}" if stream else ""
    names = f"there are {sorted(known)}" if known else "there is none"
    return ConfigError(
        f"app {app.name!r} declares no processor {processor!r}{of}, and none is registered in "
        f"Redis: {names}"
    )
