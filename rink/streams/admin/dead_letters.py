"""Show dead letters, turn them into events again, or discard them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from rink.errors import StateError
from rink.plural import plural
from rink.redis.reply_text import text
from rink.streams.admin.targets import ProcessorPartition, Row, change, each, find, read, store_of
from rink.streams.errors import PartitionFull
from rink.streams.store import entry_ids
from rink.streams.store.store import Store

if TYPE_CHECKING:
    from rink.streams.app import App


@attrs.frozen(kw_only=True)
class DeadLetterRow(Row):
    """Show an event that was given up.

    Attributes:
        id: the id of the dead letter.
        event: the id of the event.
        given_up: when the event was given up, by the clock of Redis.
        sent: when the event was sent.
        error: the last error, in one line.
        attempts: how often the event was tried alone, or how many processes it crashed.
        record: the record's bytes as text.
        trace: the error's traceback.
    """

    id: str
    event: str
    given_up: str
    sent: str
    error: str
    attempts: int
    record: str
    trace: str


@attrs.frozen
class DeadLetters:
    """Hold the number of dead letters, and the newest ones, oldest first."""

    total: int
    letters: tuple[DeadLetterRow, ...]


@attrs.frozen(kw_only=True)
class Requeued(Row):
    """Report a dead letter that is an event again, only for its processor.

    Attributes:
        letter: the id of the dead letter.
        event: the id of the new event.
    """

    letter: str
    event: str


@attrs.frozen(kw_only=True)
class Discarded(Row):
    """Report how many letters of a processor were removed in a partition."""

    letters: int


async def dead_letters(
    app: App,
    *,
    processor: str | None = None,
    stream: str | None = None,
    partition: int | None = None,
    last: int = 20,
) -> DeadLetters:
    """Return the newest dead letters, at most `last`.

    `processor`, `stream` and `partition` select dead letters. The processor may be one that was
    forgotten.

    Raises:
        ConfigError: there is no such processor, stream or partition.
        StateError: Redis has another number of partitions than the app.
        RedisError: a call to Redis failed.
    """
    store = await store_of(app)
    places = await find(app, processor=processor, stream=stream, partition=partition, gone=True)
    totals = await each(lambda target: _count(store, target), places)
    targets = [target for target, total in zip(places, totals, strict=True) if total]
    pages = await each(lambda target: _newest(store, target, last), targets)
    letters = [letter for page in pages for letter in page]
    letters.sort(key=lambda letter: entry_ids.order(letter.id))
    return DeadLetters(sum(totals), tuple(letters[-last:]))


async def dead_letter(
    app: App,
    letter: str,
    *,
    processor: str | None = None,
    stream: str | None = None,
    partition: int | None = None,
) -> DeadLetterRow:
    """Return one dead letter by its id.

    Raises:
        StateError: there is no dead letter with this id, or several partitions have one.
        ConfigError, RedisError: as `dead_letters`.
    """
    store = await store_of(app)
    places = await find(app, processor=processor, stream=stream, partition=partition, gone=True)
    holder = await _holder(store, places, letter)
    return _letter(holder, (await _range(store, holder, letter))[0])


async def requeue(
    app: App,
    letter: str | None = None,
    *,
    processor: str | None = None,
    stream: str | None = None,
    partition: int | None = None,
) -> tuple[Requeued, ...]:
    """Turn dead letters into events again, only for their processor.

    The events are added at the end of their partitions, behind events that were sent since. So the
    order of their keys is not kept. `letter` is the id of one dead letter. Without it, all present
    dead letters of the processor, stream or partition are requeued, oldest first.

    Raises:
        StateError: there is no dead letter with this id, several partitions have one, or its
            processor is no longer registered, or not yet.
        PartitionFull: there is no room; the dead letters before it are events again.
        ConfigError, RedisError: as `dead_letters`.
    """
    store = await store_of(app)
    places = await find(app, processor=processor, stream=stream, partition=partition, gone=True)
    if letter is not None:
        holder = await _holder(store, places, letter)
        done = await _requeue(store, holder, letter, 0)
        if done is None:
            raise _no_letter(letter)
        return (done,)
    requeued: list[Requeued] = []
    for target in places:
        for letter_id in await _all_ids(store, target):
            done = await _requeue(store, target, letter_id, len(requeued))
            requeued += [done] if done else []  # None: another call has requeued it meanwhile
    return tuple(requeued)


async def _requeue(
    store: Store, item: ProcessorPartition, letter: str, before: int
) -> Requeued | None:
    place = item.place
    names, bounds = place.names, place.bounds
    keys = [names.dead(place.processor), *names.keys]
    status, *answer = await store.run(
        "requeue", keys, processor=place.processor, letter=letter, bounds=bounds.args
    )
    match text(status):
        case "gone":
            return None
        case "unknown":
            raise StateError(
                f"processor {place.processor!r} is not registered in {place.role!r}, so the event "
                "would not be processed; start a worker that has the processor first",
                key=names.offsets,
            )
        case "full":
            raise PartitionFull(
                f"partition {place.role!r} holds {bounds.limit} {plural(bounds.limit, 'event')} "
                f"that some processor has not committed, and has no room for dead letter {letter}; "
                f"letters requeued before: {before}",
                stream=place.stream,
                partition=place.number,
            )
    return Requeued(
        **item.row,
        letter=letter,
        event=text(answer[0]),
    )


async def discard(
    app: App,
    letter: str | None = None,
    *,
    processor: str | None = None,
    stream: str | None = None,
    partition: int | None = None,
) -> tuple[Discarded, ...]:
    """Remove dead letters for good, selected as in `requeue`.

    Rink itself never removes dead letters. The processor may be one that was forgotten.

    Raises:
        StateError: there is no dead letter with this id, or several partitions have one.
        ConfigError, RedisError: as `dead_letters`.
    """
    store = await store_of(app)
    places = await find(app, processor=processor, stream=stream, partition=partition, gone=True)
    if letter is not None:
        holder = await _holder(store, places, letter)
        count = await read(store, _key(holder), lambda redis: redis.xdel(_key(holder), letter))
        if not count:
            raise _no_letter(letter)
        return (Discarded(**holder.row, letters=count),)
    return await change(lambda target: _discard_all(store, target), places)


async def _discard_all(store: Store, item: ProcessorPartition) -> Discarded | None:
    """Remove the present letters, but no letters that arrive meanwhile."""
    key = _key(item)
    last = await read(store, key, lambda redis: redis.xrevrange(key, count=1))
    if not last:
        return None
    ms, seq = entry_ids.order(text(last[0][0]))
    end = f"{ms}-{seq + 1}"
    count = await read(store, key, lambda redis: redis.xtrim(key, minid=end, approximate=False))
    return Discarded(**item.row, letters=count)


async def _holder(
    store: Store, places: list[ProcessorPartition], letter: str
) -> ProcessorPartition:
    """Return the only place that has a letter with this id."""
    if not entry_ids.is_id(letter):
        raise StateError(f"{letter!r} is no id of a dead letter: they look like 1700000000000-0")
    pages = await each(lambda target: _range(store, target, letter), places)
    holders = [target for target, page in zip(places, pages, strict=True) if page]
    if not holders:
        raise _no_letter(letter)
    if len(holders) > 1:
        where = ", ".join(f"{holder.place.role} of {holder.place.processor}" for holder in holders)
        raise StateError(
            f"several dead letters have the id {letter}: name one partition of {where}"
        )
    return holders[0]


def _no_letter(letter: str) -> StateError:
    return StateError(
        f"there is no dead letter {letter}: it was requeued or discarded, or never was one"
    )


def _key(item: ProcessorPartition) -> str:
    return item.place.names.dead(item.place.processor)


async def _count(store: Store, item: ProcessorPartition) -> int:
    return int(await read(store, _key(item), lambda redis: redis.xlen(_key(item))))


async def _newest(store: Store, item: ProcessorPartition, count: int) -> list[DeadLetterRow]:
    newest: list[DeadLetterRow] = []
    async for entry in store.entries(_key(item), newest_first=True):
        newest.append(_letter(item, entry))
        if len(newest) == count:
            break
    return newest


async def _range(store: Store, item: ProcessorPartition, letter: str) -> list[Any]:
    key = _key(item)
    return list(await read(store, key, lambda redis: redis.xrange(key, letter, letter)))


async def _all_ids(store: Store, item: ProcessorPartition) -> list[str]:
    """Return the ids of the present letters.

    A requeued event may fail again and become a letter meanwhile. It is not requeued twice.
    """
    return [text(entry_id) async for entry_id, _ in store.entries(_key(item))]


def _letter(item: ProcessorPartition, entry: Any) -> DeadLetterRow:
    letter_id = text(entry[0])
    fields = {text(name): value for name, value in entry[1].items()}
    event = text(fields.get("id", b""))
    return DeadLetterRow(
        **item.row,
        id=letter_id,
        event=event,
        given_up=entry_ids.when(letter_id),
        sent=entry_ids.when(event) if entry_ids.is_id(event) else "",
        error=text(fields.get("error", b"")),
        attempts=int(fields.get("attempts", 0)),
        record=_shown(fields.get("d", b"")),
        trace=text(fields.get("trace", b"")),
    )


def _shown(data: Any) -> str:
    return data.decode(errors="backslashreplace") if isinstance(data, bytes) else str(data)
