"""Move offsets, or remove them: unquarantine, reset, forget.

Each partition takes one step in Redis. Each step raises the processor's `epoch`. So a present owner
learns of the change with its next commit, and takes the partition again.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

import attrs

from rink.core.wording import some
from rink.errors import ConfigError, StateError
from rink.redis.reply_text import text
from rink.streams.admin.targets import (
    ProcessorPartition,
    Row,
    change,
    check_not_sparks,
    each,
    find,
    read,
    store_of,
)
from rink.streams.store import entry_ids
from rink.streams.store.store import Store
from rink.streams.store.values import PartitionPlace

if TYPE_CHECKING:
    from rink.streams.app import App

_CULPRIT = re.compile(r"event (\d+-\d+) of ")


@attrs.frozen(kw_only=True)
class Unquarantined(Row):
    """Report a partition that is processed again.

    Attributes:
        reason: why it was quarantined.
        offset: the offset behind which processing continues.
        skipped: the event that was skipped and is a dead letter now; "" for none.
    """

    reason: str
    offset: str
    skipped: str


@attrs.frozen(kw_only=True)
class Moved(Row):
    """Report an offset that was moved.

    Attributes:
        before: the id before the move.
        after: the id after the move; the event behind it comes next.
        gone_before: events behind `after` that were sent before this time may be gone; "" if no
            event is.
    """

    before: str
    after: str
    gone_before: str


@attrs.frozen(kw_only=True)
class Forgotten(Row):
    """Report a processor for which trimming no longer waits.

    Attributes:
        declared: the app still has the processor. Then the next worker registers it again, at its
            `start`.
        waited: events that the processor had not committed.
        trimmed: events that were kept only for this processor, and are gone now.
        letters: the processor's dead letters, which stay.
    """

    declared: bool
    waited: int
    trimmed: int
    letters: int


async def unquarantine(
    app: App,
    *,
    processor: str | None = None,
    stream: str | None = None,
    partition: int | None = None,
    skip: bool = False,
) -> tuple[Unquarantined, ...]:
    """Process quarantined partitions again.

    Partitions that are not quarantined are left alone. With `skip`, the event for which a partition
    was quarantined is skipped, and becomes a dead letter.

    Raises:
        ConfigError: there is no such processor, stream or partition, or it is a query of Spark.
        StateError: Redis has another number of partitions than the app; or, with `skip`, the next
            event is not the one for which the partition was quarantined.
        RedisError: a call to Redis failed.
    """
    if processor is not None:
        check_not_sparks(app, processor)
    store = await store_of(app)
    places = await find(app, processor=processor, stream=stream, partition=partition)
    return await change(lambda target: _unquarantine(store, target, skip=skip), places)


async def _unquarantine(
    store: Store, item: ProcessorPartition, *, skip: bool
) -> Unquarantined | None:
    place = item.place
    position = await store.position(place)
    if not position.quarantined:
        return None
    if skip:
        status, *answer = await _skip(store, item, position.quarantined)
    else:
        status, *answer = await store.run("unquarantine", place.keys, **place.args)
    if text(status) != "ok":  # another call has unquarantined it meanwhile
        return None
    reason, offset = (text(part) for part in answer)
    return Unquarantined(
        **item.row,
        reason=reason,
        offset=offset,
        skipped=offset if skip else "",
    )


async def _skip(store: Store, item: ProcessorPartition, reason: str) -> list[object]:
    place = item.place
    culprit = _CULPRIT.match(reason)
    if culprit is None:
        raise StateError(
            f"partition {place.role!r} of processor {place.processor!r} was not quarantined for an "
            f"event: {reason}: unquarantine it without skip, or reset its offset",
            key=place.at,
        )
    keys = [*place.keys, place.names.dead(place.processor)]
    answer: list[object] = await store.run(
        "skip", keys,
        processor=place.processor, entry_id=culprit[1],
        error=f"Skipped by an operator: {reason}", is_trimmed=item.stream.is_trimmed,
    )  # fmt: skip
    match text(answer[0]):
        case "none" | "other":
            state = f"is {text(answer[1])}" if len(answer) > 1 else "is not there"
            raise StateError(
                f"partition {place.role!r} of processor {place.processor!r} was quarantined for "
                f"event {culprit[1]}, but the next event {state}: unquarantine the partition "
                "without skip",
                key=place.at,
            )
    return answer


async def reset(
    app: App,
    processor: str,
    to: str | datetime,
    *,
    stream: str | None = None,
    partition: int | None = None,
) -> tuple[Moved, ...]:
    """Move a processor's offset; process quarantined partitions again.

    A move back processes events again. After a move forward, the events in between are never
    processed.

    Args:
        app: the app.
        processor: the processor, which may be one that only Redis knows.
        to: `earliest`, `latest`, or an event's id, behind which processing continues. Or a time
            from which on events come: a datetime or ISO 8601, in UTC without a zone, or
            milliseconds since 1970.
        stream: only this stream.
        partition: only this partition.

    Raises:
        ConfigError: there is no such processor, stream or partition, it is a query of Spark, or
            `to` cannot be read.
        StateError: the id lies behind the end of a partition, or Redis has another number of
            partitions than the app. No offset was moved.
        RedisError: a call to Redis failed.
    """
    target, is_time = _target(to)
    check_not_sparks(app, processor)
    store = await store_of(app)
    places = await find(app, processor=processor, stream=stream, partition=partition)
    registered = [item for item in places if item.place.processor in item.offsets]
    targets = dict.fromkeys((item.place.role for item in registered), (target, ""))
    if target not in ("earliest", "latest"):
        within = await each(lambda item: _within(store, item.place, target, is_time), registered)
        targets = dict(zip(targets, within, strict=True))
    return await change(lambda item: _reset(store, item, *targets[item.place.role]), registered)


def _target(to: str | datetime) -> tuple[str, bool]:
    """Return the offset for Redis, and True if it comes from a time."""
    if isinstance(to, str):
        if to in ("earliest", "latest"):
            return to, False
        if entry_ids.is_id(to):
            # Scripts compare ids as text, so each id must have only one form.
            return "{}-{}".format(*entry_ids.order(to)), False
    ms = _milliseconds(to)
    if ms is None or ms < 1:
        raise ConfigError(
            f"{to!r} is no offset: give earliest, latest, an event's id such as 1700000000000-0, "
            "a time since 1970 such as 2026-11-27T00:00 (UTC) or 2026-11-27T00:00+02:00, or "
            "milliseconds since 1970"
        )
    return f"{ms - 1}-{2**64 - 1}", True


def _milliseconds(to: str | datetime) -> int | None:
    if isinstance(to, datetime):
        return entry_ids.ms_of(to)
    if re.fullmatch(r"\d{8,10}", to, re.ASCII):
        raise ConfigError(
            f"{to!r} may be a date, seconds or milliseconds: write a date as 2026-11-27, and "
            "milliseconds since 1970 with all of their digits"
        )
    if re.fullmatch(r"\d{1,19}", to, re.ASCII):
        return int(to)
    try:
        return entry_ids.ms_of(datetime.fromisoformat(to))
    except ValueError:
        return None


async def _within(
    store: Store, place: PartitionPlace, target: str, is_time: bool
) -> tuple[str, str]:
    """Return the id to continue behind, and `Moved.gone_before`.

    An id behind the end of the partition is refused. With such an offset the next owner would find
    that Redis has lost data.
    """
    key = place.names.stream
    look = await store.look(place)
    last = await read(store, key, lambda redis: redis.xrevrange(key, count=1))
    end = text(last[0][0]) if last else entry_ids.NONE
    if entry_ids.order(target) <= entry_ids.order(end):
        is_gone = look.removed and entry_ids.order(target) < entry_ids.order(look.oldest)
        return target, entry_ids.when(look.oldest) if is_gone else ""
    if is_time:  # no event was sent since that time
        return end, ""
    raise StateError(
        f"partition {place.role!r} ends at {end}, before {target}: give latest for its end; no "
        "offset was moved",
        key=key,
    )


async def _reset(
    store: Store, item: ProcessorPartition, target: str, gone_before: str
) -> Moved | None:
    place = item.place
    answer = await store.run("reset", place.keys, processor=place.processor, to=target)
    status, *offsets = (text(part) for part in answer)
    if status != "ok":
        return None
    return Moved(
        **item.row,
        before=offsets[0],
        after=offsets[1],
        gone_before=gone_before,
    )


async def forget_group(
    app: App, processor: str, *, stream: str | None = None, force: bool = False
) -> tuple[Forgotten, ...]:
    """Forget a retired processor, so that trimming no longer waits for it.

    Its offsets are removed, and its dead letters stay. If the processor is started again, it begins
    at its `start`.

    Args:
        app: the app.
        processor: the processor, which may be one that only Redis knows.
        stream: only this stream.
        force: forget the processor even if it has owners or quarantined partitions. An owner's
            partition is quarantined with its next commit. A worker that waits for the end of a
            quarantine registers the processor again.

    Raises:
        ConfigError: there is no such processor or stream.
        StateError: there is an owner, a partition is quarantined, or Redis has another number of
            partitions. Nothing was forgotten, unless an owner or a quarantine came meanwhile. Then
            a note of the error names the partitions in which the processor was forgotten.
        RedisError: a call to Redis failed.
    """
    store = await store_of(app)
    places = [
        target
        for target in await find(app, processor=processor, stream=stream)
        if processor in target.offsets
    ]
    positions = await each(lambda target: store.position(target.place), places)
    owned = [
        target.place.role
        for target, position in zip(places, positions, strict=True)
        if position.is_open or position.quarantined
    ]
    if owned and not force:
        raise _at_work(processor, owned)
    return await change(lambda target: _forget(store, target, force=force), places)


async def _forget(store: Store, item: ProcessorPartition, *, force: bool) -> Forgotten:
    place = item.place
    waited = await store.lag(place)
    dead = place.names.dead(place.processor)
    letters = await read(store, dead, lambda redis: redis.xlen(dead))
    answer = await store.run("forget", place.keys, processor=place.processor, force=force)
    if text(answer[0]) == "open":
        raise _at_work(place.processor, [place.role])
    is_trimmed = item.stream.trim == "committed"
    trimmed = await store.trim(place.names, place.bounds) if is_trimmed else 0
    return Forgotten(
        **item.row,
        declared=item.declared,
        waited=waited,
        trimmed=trimmed,
        letters=int(letters),
    )


def _at_work(processor: str, roles: list[str]) -> StateError:
    return StateError(
        f"processor {processor!r} is at work in {some(tuple(roles))}, or quarantined there, and "
        "its workers may register it again. Stop its workers, or use force, which quarantines each "
        "partition that has an owner"
    )
