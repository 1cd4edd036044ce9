"""Dead letters: events that a processor has given up, and how they become events again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from rink.errors import StateError
from rink.streams.admin.targets import Found, change, each, find, read, store_of
from rink.streams.errors import PartitionFull
from rink.streams.store import entry_ids
from rink.streams.store.store import Store, text

if TYPE_CHECKING:
    from rink.streams.app import App


@attrs.frozen(kw_only=True)
class DeadLetterRow:
    """An event that was given up.

    Attributes:
        id: of the letter.
        event: the id that the event had.
        given_up: when, by Redis' clock.
        sent: when the event was sent.
        error: the last one, in one line.
        attempts: how often it was tried alone; or how many processes it ended.
        record: its bytes as text.
        trace: the error's traceback.
    """

    processor: str
    stream: str
    partition: int
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
    """How many there are, and the newest of them, oldest first."""

    total: int
    letters: tuple[DeadLetterRow, ...]


@attrs.frozen(kw_only=True)
class Requeued:
    """A dead letter that is an event again, for its processor alone: its id then and now."""

    processor: str
    stream: str
    partition: int
    letter: str
    event: str


@attrs.frozen(kw_only=True)
class Discarded:
    """How many dead letters of a processor in one partition were removed."""

    processor: str
    stream: str
    partition: int
    letters: int


async def dead_letters(
    app: App,
    *,
    processor: str | None = None,
    stream: str | None = None,
    partition: int | None = None,
    last: int = 20,
) -> DeadLetters:
    """Return the newest dead letters.

    Args:
        app: whose.
        processor: only this one's; that of one that was forgotten, too.
        stream: only this one's.
        partition: only this one's.
        last: how many.

    Raises:
        ConfigError: there is no such processor, stream or partition.
        StateError: Redis has another number of partitions than the app.
        RedisError: Redis did not answer as it should.
    """
    store = await store_of(app)
    found = await find(app, processor=processor, stream=stream, partition=partition, gone=True)
    totals = await each(lambda one: _count(store, one), found)
    full = [one for one, total in zip(found, totals, strict=True) if total]
    pages = await each(lambda one: _newest(store, one, last), full)
    every = sorted((one for page in pages for one in page), key=lambda one: entry_ids.order(one.id))
    return DeadLetters(sum(totals), tuple(every[-last:]))


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
        StateError: there is none of this id, or several partitions have one.
        ConfigError, RedisError: as `dead_letters`.
    """
    store = await store_of(app)
    found = await find(app, processor=processor, stream=stream, partition=partition, gone=True)
    one = await _holder(store, found, letter)
    return _letter(one, (await _range(store, one, letter))[0])


async def requeue(
    app: App,
    letter: str | None = None,
    *,
    processor: str | None = None,
    stream: str | None = None,
    partition: int | None = None,
) -> tuple[Requeued, ...]:
    """Make dead letters events again, at the end of their partitions and for their processor alone.

    They come behind what was sent since: of their keys, the order is not kept.

    Args:
        app: whose.
        letter: only the one with this id; all that there are when it begins where None, oldest first.
        processor: only this one's.
        stream: only this one's.
        partition: only this one's.

    Raises:
        StateError: there is no letter of this id, several partitions have one, or its processor is not
            registered (any more).
        PartitionFull: there is no room; those before it are events again.
        ConfigError, RedisError: as `dead_letters`.
    """
    store = await store_of(app)
    found = await find(app, processor=processor, stream=stream, partition=partition, gone=True)
    if letter is not None:
        one = await _holder(store, found, letter)
        done = await _requeue(store, one, letter, 0)
        if done is None:
            raise _no_letter(letter)
        return (done,)
    requeued: list[Requeued] = []
    for one in found:
        for letter_id in await _all_ids(store, one):
            done = await _requeue(store, one, letter_id, len(requeued))
            requeued += [done] if done else []  # None: somebody else was faster
    return tuple(requeued)


async def _requeue(store: Store, found: Found, letter: str, before: int) -> Requeued | None:
    place = found.place
    names, bounds = place.names, place.bounds
    keys = [names.dead(place.processor), *names.keys]
    said, *answer = await store.run("requeue", keys, place.processor, letter, *bounds.given)
    match text(said):
        case "gone":
            return None
        case "unknown":
            raise StateError(
                f"processor {place.processor!r} is not registered in {place.role!r}: nobody would process "
                "the event; start a worker that has it first",
                key=names.offsets,
            )
        case "full":
            raise PartitionFull(
                f"partition {place.role!r} holds {bounds.limit} events that some processor has not committed, "
                f"and has no room for dead letter {letter}; {before} letters were requeued before",
                stream=place.stream,
                partition=place.number,
            )
    return Requeued(
        processor=place.processor,
        stream=place.stream,
        partition=place.number,
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
    """Remove dead letters for good: they have no bound, and whoever has looked into them needs them no more.

    Args:
        app: whose.
        letter: only the one with this id; all that there are when it begins where None.
        processor: only this one's; that of one that was forgotten, too.
        stream: only this one's.
        partition: only this one's.

    Raises:
        StateError: there is no letter of this id, or several partitions have one.
        ConfigError, RedisError: as `dead_letters`.
    """
    store = await store_of(app)
    found = await find(app, processor=processor, stream=stream, partition=partition, gone=True)
    if letter is not None:
        one = await _holder(store, found, letter)
        count = await read(store, _key(one), lambda redis: redis.xdel(_key(one), letter))
        if not count:
            raise _no_letter(letter)
        return (_discarded(one, count),)
    return await change(lambda one: _discard_all(store, one), found)


async def _discard_all(store: Store, found: Found) -> Discarded | None:
    """Remove the letters there are now, and none that comes meanwhile."""
    key = _key(found)
    last = await read(store, key, lambda redis: redis.xrevrange(key, count=1))
    if not last:
        return None
    ms, seq = entry_ids.order(text(last[0][0]))
    end = f"{ms}-{seq + 1}"
    count = await read(store, key, lambda redis: redis.xtrim(key, minid=end, approximate=False))
    return _discarded(found, count)


def _discarded(found: Found, count: int) -> Discarded:
    place = found.place
    return Discarded(
        processor=place.processor, stream=place.stream, partition=place.number, letters=count
    )


async def _holder(store: Store, found: list[Found], letter: str) -> Found:
    """Return the one place that has a letter of this id."""
    if not entry_ids.is_id(letter):
        raise StateError(f"{letter!r} is no id of a dead letter: they look like 1700000000000-0")
    pages = await each(lambda one: _range(store, one, letter), found)
    holders = [one for one, page in zip(found, pages, strict=True) if page]
    if not holders:
        raise _no_letter(letter)
    if len(holders) > 1:
        where = ", ".join(f"{one.place.role} of {one.place.processor}" for one in holders)
        raise StateError(
            f"several dead letters have the id {letter}: name one partition of {where}"
        )
    return holders[0]


def _no_letter(letter: str) -> StateError:
    return StateError(
        f"there is no dead letter {letter}: it was requeued or discarded, or never was one"
    )


def _key(found: Found) -> str:
    return found.place.names.dead(found.place.processor)


async def _count(store: Store, found: Found) -> int:
    return int(await read(store, _key(found), lambda redis: redis.xlen(_key(found))))


async def _newest(store: Store, found: Found, count: int) -> list[DeadLetterRow]:
    newest: list[DeadLetterRow] = []
    async for entry in store.entries(_key(found), newest_first=True):
        newest.append(_letter(found, entry))
        if len(newest) == count:
            break
    return newest


async def _range(store: Store, found: Found, letter: str) -> list[Any]:
    key = _key(found)
    return list(await read(store, key, lambda redis: redis.xrange(key, letter, letter)))


async def _all_ids(store: Store, found: Found) -> list[str]:
    """Return the ids of the letters there are now: one that comes back meanwhile waits for the next time."""
    return [text(entry_id) async for entry_id, _ in store.entries(_key(found))]


def _letter(found: Found, entry: Any) -> DeadLetterRow:
    place = found.place
    letter_id = text(entry[0])
    fields = {text(name): value for name, value in entry[1].items()}
    event = text(fields.get("id", b""))
    return DeadLetterRow(
        processor=place.processor,
        stream=place.stream,
        partition=place.number,
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
