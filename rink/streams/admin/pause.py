"""Pause a processor, and resume it.

Meanwhile its partitions keep their owners, and yield no events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rink.streams.admin.targets import ProcessorPartition, change, check_not_sparks, find, store_of
from rink.streams.store.store import Store, text

if TYPE_CHECKING:
    from rink.streams.app import App


@attrs.frozen(kw_only=True)
class Paused:
    """A partition in which a processor was paused.

    Attributes:
        lag: events that the processor had not committed by then, counted up to 100,000.
    """

    processor: str
    stream: str
    partition: int
    lag: int


@attrs.frozen(kw_only=True)
class Resumed:
    """A partition in which a processor was resumed; `lag` as in `Paused`."""

    processor: str
    stream: str
    partition: int
    lag: int


async def pause(
    app: App, processor: str, *, stream: str | None = None, partition: int | None = None
) -> tuple[Paused, ...]:
    """Pause a processor, in all partitions or in one.

    Partitions that are paused already are left alone. Workers notice within about two seconds, and
    finish and commit their in-flight events. A partition keeps its owner. It stays paused if its
    owner ends or another one takes over.

    Args:
        app: the app.
        processor: the processor, which may be one that only Redis knows, or that was never started.
        stream: only this stream.
        partition: only this partition.

    Raises:
        ConfigError: there is no such processor, stream or partition, or it is a query of Spark.
        StateError: Redis has another number of partitions than the app.
        RedisError: a call to Redis failed.
    """

    async def pause_one(store: Store, found: ProcessorPartition) -> Paused | None:
        lag = await _set(store, found, paused=True)
        place = found.place
        return (
            None
            if lag is None
            else Paused(
                processor=place.processor, stream=place.stream, partition=place.number, lag=lag
            )
        )

    store, places = await _select(app, processor, stream, partition)
    return await change(lambda target: pause_one(store, target), places)


async def resume(
    app: App, processor: str, *, stream: str | None = None, partition: int | None = None
) -> tuple[Resumed, ...]:
    """Resume a processor that was paused, in all partitions or in one.

    Partitions that are not paused are left alone. Arguments and errors are those of `pause`.
    """

    async def resume_one(store: Store, found: ProcessorPartition) -> Resumed | None:
        lag = await _set(store, found, paused=False)
        place = found.place
        return (
            None
            if lag is None
            else Resumed(
                processor=place.processor, stream=place.stream, partition=place.number, lag=lag
            )
        )

    store, places = await _select(app, processor, stream, partition)
    return await change(lambda target: resume_one(store, target), places)


async def _select(
    app: App, processor: str, stream: str | None, partition: int | None
) -> tuple[Store, list[ProcessorPartition]]:
    check_not_sparks(app, processor)
    store = await store_of(app)
    return store, await find(app, processor=processor, stream=stream, partition=partition)


async def _set(store: Store, found: ProcessorPartition, *, paused: bool) -> int | None:
    """Return the lag; None if there was nothing to change."""
    answer = await store.run("pause", [found.place.at], paused=paused)
    return await store.lag(found.place) if text(answer[0]) == "ok" else None
