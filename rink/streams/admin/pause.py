"""Pause a processor, and resume it.

During a pause its partitions keep their owners, but yield no events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from rink.redis.reply_text import text
from rink.streams.admin.targets import (
    ProcessorPartition,
    Row,
    change,
    check_not_sparks,
    find,
    store_of,
)

if TYPE_CHECKING:
    from rink.streams.app import App


@attrs.frozen(kw_only=True)
class Paused(Row):
    """Report a partition in which a processor was paused.

    Attributes:
        lag: events that the processor had not committed then, counted up to 100,000.
    """

    lag: int


@attrs.frozen(kw_only=True)
class Resumed(Row):
    """Report a partition that was resumed; see `Paused` for `lag`."""

    lag: int


async def pause(
    app: App, processor: str, *, stream: str | None = None, partition: int | None = None
) -> tuple[Paused, ...]:
    """Pause a processor, in all partitions or in one.

    Partitions that are paused already are left alone. Workers notice within about two seconds, and
    finish and commit their in-flight events. A partition keeps its owner. It stays paused if its
    owner ends or another worker takes over.

    The processor may be one that only Redis knows, or that was never started.

    Raises:
        ConfigError: there is no such processor, stream or partition, or it is a query of Spark.
        StateError: Redis has another number of partitions than the app.
        RedisError: a call to Redis failed.
    """
    rows = await _set(app, processor, stream, partition, paused=True)
    return tuple(Paused(**row) for row in rows)


async def resume(
    app: App, processor: str, *, stream: str | None = None, partition: int | None = None
) -> tuple[Resumed, ...]:
    """Resume a processor that was paused, in all partitions or in one.

    Partitions that are not paused are left alone. `pause` has the same arguments and errors.
    """
    rows = await _set(app, processor, stream, partition, paused=False)
    return tuple(Resumed(**row) for row in rows)


async def _set(
    app: App, processor: str, stream: str | None, partition: int | None, *, paused: bool
) -> tuple[dict[str, Any], ...]:
    """Return the fields of each partition that was changed."""

    async def set_one(item: ProcessorPartition) -> dict[str, Any] | None:
        answer = await store.run("pause", [item.place.at], paused=paused)
        if text(answer[0]) != "ok":
            return None
        return {**item.row, "lag": await store.lag(item.place)}

    check_not_sparks(app, processor)
    store = await store_of(app)
    places = await find(app, processor=processor, stream=stream, partition=partition)
    return await change(set_one, places)
