"""Move offsets, or end them: unquarantine, reset, forget.

Each partition is one step in Redis, and each raises the place's `epoch`: an owner at work learns with its next
commit that an operator was here, and takes the partition anew.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

import attrs

from rink.core.own_record import some
from rink.errors import ConfigError, StateError
from rink.streams.admin.targets import Found, change, check_not_sparks, each, find, read, store_of
from rink.streams.store import entry_ids
from rink.streams.store.store import Store, text
from rink.streams.store.values import PartitionPlace

if TYPE_CHECKING:
    from rink.streams.app import App

_CULPRIT = re.compile(r"event (\d+-\d+) of ")


@attrs.frozen(kw_only=True)
class Unquarantined:
    """A partition that is processed again.

    Attributes:
        reason: what it was quarantined for.
        offset: where it goes on.
        skipped: the event that was passed over and is a dead letter now; "" where none was.
    """

    processor: str
    stream: str
    partition: int
    reason: str
    offset: str
    skipped: str


@attrs.frozen(kw_only=True)
class Moved:
    """Describes an offset that was moved from `before` to `after`.

    Both are IDs. The event behind `after` comes next.

    Attributes:
        gone_before: events behind `after` that were sent before this time may be gone; "" where none is.
    """

    processor: str
    stream: str
    partition: int
    before: str
    after: str
    gone_before: str


@attrs.frozen(kw_only=True)
class Forgotten:
    """A processor that trimming waits for no longer.

    Attributes:
        declared: the app has it still: the next worker registers it again, where it says that it starts.
        waited: events that it had not committed.
        trimmed: events that were kept for nobody but it, and are gone now.
        letters: its dead letters, which stay.
    """

    processor: str
    stream: str
    partition: int
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
    """Have quarantined partitions processed again.

    Those that are not quarantined are left alone.

    Args:
        app: whose.
        processor: only this one's.
        stream: only this one's.
        partition: only this one.
        skip: pass over the event that the partition was quarantined for: it becomes a dead letter.

    Raises:
        ConfigError: there is no such processor, stream or partition, or it is a query of Spark.
        StateError: Redis has another number of partitions than the app; or, with `skip`, the next event is not
            the one that the partition was quarantined for.
        RedisError: Redis did not answer as it should.
    """
    if processor is not None:
        check_not_sparks(app, processor)
    store = await store_of(app)
    found = await find(app, processor=processor, stream=stream, partition=partition)
    return await change(lambda one: _unquarantine(store, one, skip=skip), found)


async def _unquarantine(store: Store, found: Found, *, skip: bool) -> Unquarantined | None:
    place = found.place
    position = await store.position(place)
    if not position.quarantined:
        return None
    if skip:
        said, *answer = await _skip(store, found, position.quarantined)
    else:
        said, *answer = await store.run("unquarantine", place.keys, place.processor, place.start)
    if text(said) != "ok":  # somebody else was faster
        return None
    reason, offset = (text(part) for part in answer)
    return Unquarantined(
        processor=place.processor,
        stream=place.stream,
        partition=place.number,
        reason=reason,
        offset=offset,
        skipped=offset if skip else "",
    )


async def _skip(store: Store, found: Found, reason: str) -> list[object]:
    place = found.place
    culprit = _CULPRIT.match(reason)
    if culprit is None:
        raise StateError(
            f"partition {place.role!r} of processor {place.processor!r} was not quarantined for an event: "
            f"{reason}: unquarantine it without skip, or reset its offset",
            key=place.at,
        )
    keys = [*place.keys, place.names.dead(place.processor)]
    letter = f"Skipped by an operator: {reason}"
    given = (place.processor, culprit[1], letter, int(found.stream.is_trimmed))
    answer: list[object] = await store.run("skip", keys, *given)
    match text(answer[0]):
        case "none" | "other":
            there = f"is {text(answer[1])}" if len(answer) > 1 else "is not there"
            raise StateError(
                f"partition {place.role!r} of processor {place.processor!r} was quarantined for event "
                f"{culprit[1]}, and the next one {there}: unquarantine it without skip",
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

    Backwards, events are processed again. Forwards, those passed over never are.

    Args:
        app: whose.
        processor: whose offset; it may be one that only Redis knows.
        to: `earliest`, `latest`, or an event's id, which the partition goes on behind. Or a time, from which on events
            come: a datetime or ISO 8601, in UTC where there is no zone, or milliseconds since 1970.
        stream: only this one's.
        partition: only this one.

    Raises:
        ConfigError: there is no such processor, stream or partition, it is a query of Spark, or `to` is none of that.
        StateError: the id lies behind the end of a partition; no offset was moved. Or Redis has another number
            of partitions than the app.
        RedisError: Redis did not answer as it should.
    """
    target, is_time = _target(to)
    check_not_sparks(app, processor)
    store = await store_of(app)
    found = await find(app, processor=processor, stream=stream, partition=partition)
    registered = [one for one in found if one.place.processor in one.offsets]
    targets = dict.fromkeys((one.place.role for one in registered), (target, ""))
    if target not in ("earliest", "latest"):
        within = await each(lambda one: _within(store, one.place, target, is_time), registered)
        targets = dict(zip(targets, within, strict=True))
    return await change(lambda one: _reset(store, one.place, *targets[one.place.role]), registered)


def _target(to: str | datetime) -> tuple[str, bool]:
    """Return what Redis is asked for, and whether that was a time."""
    if isinstance(to, str):
        if to in ("earliest", "latest"):
            return to, False
        if entry_ids.is_id(
            to
        ):  # scripts compare ids part by part as text: there is one way to write each
            return "{}-{}".format(*entry_ids.order(to)), False
    ms = _milliseconds(to)
    if ms is None or ms < 1:
        raise ConfigError(
            f"{to!r} is no offset: give earliest, latest, an event's id such as 1700000000000-0, a time since 1970 "
            "such as 2026-11-27T00:00 (UTC) or 2026-11-27T00:00+02:00, or milliseconds since 1970"
        )
    return f"{ms - 1}-{2**64 - 1}", True


def _milliseconds(to: str | datetime) -> int | None:
    if isinstance(to, datetime):
        return entry_ids.ms_of(to)
    if re.fullmatch(r"\d{8,10}", to, re.ASCII):
        raise ConfigError(
            f"{to!r} may be a date, seconds or milliseconds: write a date as 2026-11-27, and milliseconds since 1970 "
            "with all of their digits"
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
    """Refuse an ID that was never given.

    With such an offset the next owner would find that Redis lost data.

    Returns:
        The id to go on behind, and until when events behind it may be gone; "" where none is.
    """
    key = place.names.stream
    look = await store.look(place)
    last = await read(store, key, lambda redis: redis.xrevrange(key, count=1))
    end = text(last[0][0]) if last else entry_ids.NONE
    if entry_ids.order(target) <= entry_ids.order(end):
        is_gone = look.removed and entry_ids.order(target) < entry_ids.order(look.oldest)
        return target, entry_ids.when(look.oldest) if is_gone else ""
    if is_time:  # nothing was sent since
        return end, ""
    raise StateError(
        f"partition {place.role!r} ends at {end}, before {target}: give latest for its end; no offset was "
        "moved",
        key=key,
    )


async def _reset(
    store: Store, place: PartitionPlace, target: str, gone_before: str
) -> Moved | None:
    answer = await store.run("reset", place.keys, place.processor, target)
    said, *offsets = (text(part) for part in answer)
    if said != "ok":
        return None
    return Moved(
        processor=place.processor,
        stream=place.stream,
        partition=place.number,
        before=offsets[0],
        after=offsets[1],
        gone_before=gone_before,
    )


async def forget_group(
    app: App, processor: str, *, stream: str | None = None, force: bool = False
) -> tuple[Forgotten, ...]:
    """Have trimming wait for a processor no longer: its offsets go, its dead letters stay.

    For one that was retired. If it is started again, it begins where it says that it starts.

    Args:
        app: whose.
        processor: which; it may be one that only Redis knows.
        stream: only this one.
        force: forget it even if it has owners or quarantined partitions. Partitions with an owner are quarantined
            with its next commit, and a worker that waits for the end of a quarantine registers the processor again.

    Raises:
        ConfigError: there is no such processor or stream.
        StateError: an owner is at work, or a partition is quarantined, and nothing was forgotten. If that happened
            meanwhile, a note of the error says what was forgotten. Or Redis has another number of partitions.
        RedisError: Redis did not answer as it should.
    """
    store = await store_of(app)
    found = [
        one
        for one in await find(app, processor=processor, stream=stream)
        if processor in one.offsets
    ]
    positions = await each(lambda one: store.position(one.place), found)
    owned = [
        one.place.role
        for one, at in zip(found, positions, strict=True)
        if at.is_open or at.quarantined
    ]
    if owned and not force:
        raise _at_work(processor, owned)
    return await change(lambda one: _forget(store, one, force=force), found)


async def _forget(store: Store, found: Found, *, force: bool) -> Forgotten:
    place = found.place
    waited = await store.lag(place)
    dead = place.names.dead(place.processor)
    letters = await read(store, dead, lambda redis: redis.xlen(dead))
    answer = await store.run("forget", place.keys, place.processor, int(force))
    if text(answer[0]) == "open":
        raise _at_work(place.processor, [place.role])
    is_trimmed = found.stream.trim == "committed"
    trimmed = await store.trim(place.names, place.bounds) if is_trimmed else 0
    return Forgotten(
        processor=place.processor,
        stream=place.stream,
        partition=place.number,
        declared=found.declared,
        waited=waited,
        trimmed=trimmed,
        letters=int(letters),
    )


def _at_work(processor: str, roles: list[str]) -> StateError:
    return StateError(
        f"processor {processor!r} is at work in {some(tuple(roles))}, or quarantined there and its workers may "
        "register it again: stop its workers, or force it (a partition with an owner is quarantined then)"
    )
