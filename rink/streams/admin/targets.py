"""Which partitions an operator means: of processors that the app declares, and of those only Redis knows."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from rink.core.own_record import some
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

AT_ONCE = 16
"""So many requests are under way at a time: each has a connection of its own."""


@attrs.frozen
class Found:
    """One partition as one processor sees it, and all that trimming waits for there.

    Attributes:
        stream: as the app declares it.
        place: the processor's place; of one that the app does not declare, too.
        offsets: of every registered processor, by name.
        declared: the app has this processor.
    """

    stream: Stream[Any]
    place: PartitionPlace
    offsets: dict[str, str]
    declared: bool


async def each(ask: Callable[[T], Awaitable[V]], items: Iterable[T]) -> list[V]:
    """Ask for every item, a few at a time; the first error ends it all."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(item: T) -> V:
        async with gate:
            return await ask(item)

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def change(
    ask: Callable[[Found], Awaitable[V | None]], found: Iterable[Found]
) -> tuple[V, ...]:
    """Change every place, a few at a time; an error keeps none of the others from it, unless Redis is away.

    Args:
        ask: changes one, and returns what came of it; None where there was nothing to change.
        found: which.

    Returns:
        What came of it where there was something to change.

    Raises:
        RinkError: the first one; a note of it says which places were changed all the same, and which may be.
    """
    places, gone = list(found), asyncio.Event()

    async def one(place: Found) -> V | Exception | None:
        if gone.is_set():
            return None
        try:
            return await ask(place)
        except RedisUnavailable as error:
            gone.set()
            return error
        except Exception as error:
            return error

    answers = await each(one, places)
    errors = [answer for answer in answers if isinstance(answer, Exception)]
    if errors:
        errors[0].add_note(_note(places, answers))
        raise errors[0]
    return tuple(one for one in answers if one is not None and not isinstance(one, Exception))


def _note(places: Sequence[Found], answers: Sequence[Any]) -> str:
    names = [f"{one.place.processor} {one.place.role}" for one in places]
    pairs = list(zip(names, answers, strict=True))
    done = [name for name, answer in pairs if not isinstance(answer, Exception | None)]
    unsure = [name for name, answer in pairs if isinstance(answer, RedisUnavailable)]
    told = f"it was done in {some(done)}" if done else "it was done nowhere"
    return told + (f", but maybe in {some(unsure)}" if unsure else "")


def check_not_sparks(app: App, processor: str) -> None:
    """Refuse to move the offset of a Spark query: its checkpoint has it."""
    if processor.startswith(OF_SPARK) and processor not in app.processors:
        raise ConfigError(
            f"{processor!r} is a query of Spark, whose checkpoint has its offsets: it would undo a change here. Stop it, "
            "delete its checkpoint and forget its group (`rink streams forget-group MODULE:ATTR "
            f"{shlex.quote(processor)}`), or start it with another group and a new checkpoint. Its option startingOffsets "
            "says where it then begins"
        )


async def store_of(app: App) -> Store:
    """Return the app's open store."""
    return (await app.connections.open()).store


async def read(store: Store, key: str, ask: Callable[[Any], Awaitable[Any]]) -> Any:
    """Ask Redis for what one command returns; the errors are ours."""
    with explained(store.server, key):
        return await ask(store.redis)


async def find(
    app: App,
    *,
    processor: str | None = None,
    stream: str | None = None,
    partition: int | None = None,
    gone: bool = False,
) -> list[Found]:
    """Return the places that are meant, by processor, stream and partition.

    Args:
        app: whose.
        processor: only this one; it may be one that only Redis knows.
        stream: only this one.
        partition: only this one.
        gone: the processor may also be one that was forgotten, and has left dead letters.

    Raises:
        ConfigError: there is no such processor, stream or partition.
        StateError: Redis has another number of partitions than the app.
        RedisError: Redis did not answer as it should.
    """
    store, streams = await store_of(app), _streams(app, stream)
    for one in streams:
        # Unlike a worker, it writes nothing.
        await store.check_count(one.names, one.name, one.partition_count, one.hasher)
    wanted = [(one, n) for one in streams for n in _numbers(one, partition)]
    found = [
        place for places in await each(lambda at: _found(app, *at), wanted) for place in places
    ]
    if partition is not None and not wanted:
        most = max((one.partition_count for one in streams), default=0)
        raise ConfigError(f"there is no partition {partition}: they are 0 to {most - 1}")
    chosen = [one for one in found if processor in (None, one.place.processor)]
    if processor is not None and not chosen:
        if gone:
            chosen = await _with_letters(app, wanted, processor)
        if not chosen:
            raise _unknown(app, processor, stream, {one.place.processor for one in found})
    return sorted(chosen, key=lambda one: (one.place.stream, one.place.processor, one.place.number))


async def _with_letters(
    app: App, wanted: Iterable[tuple[Stream[Any], int]], processor: str
) -> list[Found]:
    """Return the places of a processor that was forgotten and has left dead letters."""
    store = await store_of(app)

    async def look(at: tuple[Stream[Any], int]) -> list[Found]:
        one = _stranger(*at, processor)
        key = one.names.dead(processor)
        there = await read(store, key, lambda redis: redis.exists(key))
        return [Found(at[0], one, {}, declared=False)] if there else []

    return [one for places in await each(look, wanted) for one in places]


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


async def _found(app: App, stream: Stream[Any], number: int) -> list[Found]:
    store = await store_of(app)
    names = stream.names.partition(number)
    offsets = await store.registered(names)
    declared = {one.name: one for one in app.processors.values() if one.stream is stream}
    return [
        Found(
            stream,
            declared[name].place(number) if name in declared else _stranger(stream, number, name),
            offsets,
            name in declared,
        )
        for name in {**declared, **offsets}
    ]


def _stranger(stream: Stream[Any], number: int, processor: str) -> PartitionPlace:
    """A partition as a processor sees it that the app does not declare."""
    return PartitionPlace(
        stream.name, number, stream.names.partition(number), processor, partition_bounds(stream)
    )


def _unknown(app: App, processor: str, stream: str | None, known: set[str]) -> ConfigError:
    of = f" of stream {stream!r}" if stream else ""
    there = f"there are {sorted(known)}" if known else "there is none"
    return ConfigError(
        f"app {app.name!r} declares no processor {processor!r}{of}, and none is registered in Redis: {there}"
    )
