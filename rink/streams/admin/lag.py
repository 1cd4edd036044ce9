"""Show the lag of each processor, and which one holds trimming back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from rink.streams.admin.targets import ProcessorPartition, Row, each, find, store_of
from rink.streams.store import entry_ids
from rink.streams.store.keys import OF_SPARK
from rink.streams.store.store import Store

if TYPE_CHECKING:
    from rink.streams.app import App


@attrs.frozen(kw_only=True)
class Lag(Row):
    """Show the lag of one processor in one partition.

    Attributes:
        declared: the app has this processor. Trimming also waits for processors that only Redis
            knows.
        lag: events that the processor has not committed. If it was never started, these are all
            events, or none with `start="latest"`.
        offset: the last committed event; "" if the processor was never registered.
        oldest: when the first event behind the offset was sent, by the clock of Redis; "" if there
            is none.
        kept: all events in the partition, including processed ones that are not trimmed yet.
        bytes: the size of these events, too large by at most one segment.
        since: when the first of these events was sent, by the clock of Redis; "" if there is none.
        keep: how long the partition keeps processed events, in words; "" if they go at once.
        held: events that count towards `size`. With retention, only the events that some processor
            has not committed, without its replay.
        size: how many events the partition may hold; 0 for no limit, as for dead letters.
        holds_back: the partition's oldest events are kept for this processor.
        owned: there is an owner.
        quarantined: why the partition is quarantined; "" if it is not.
        paused: an operator has paused the processor here.
        processed: events processed since the beginning.
        dead: events given up since the beginning.
        lost: events that `trim="oldest"` dropped before the processor had processed them.
        unclean: owners that crashed.
    """

    declared: bool
    lag: int
    offset: str
    oldest: str
    kept: int
    bytes: int
    since: str
    keep: str
    held: int
    size: int
    holds_back: bool
    owned: bool
    quarantined: str
    paused: bool
    processed: int
    dead: int
    lost: int
    unclean: int

    @property
    def is_sparks(self) -> bool:
        """Return whether this is a query of Spark, not a former processor."""
        return not self.declared and self.processor.startswith(OF_SPARK)


async def lag(
    app: App,
    *,
    processor: str | None = None,
    stream: str | None = None,
    partition: int | None = None,
) -> tuple[Lag, ...]:
    """Return the lag of each processor.

    Processors that only Redis knows are included. `processor`, `stream` and `partition` select
    rows. This changes nothing in Redis.

    Raises:
        ConfigError: there is no such processor, stream or partition.
        StateError: Redis has another number of partitions than the app.
        RedisError: a call to Redis failed.
    """
    store = await store_of(app)
    places = await find(app, processor=processor, stream=stream, partition=partition)
    return tuple(await each(lambda target: _lag(store, target), places))


async def _lag(store: Store, item: ProcessorPartition) -> Lag:
    place = item.place
    look = await store.look(place)
    position = look.position
    is_log = bool(look.retention) and place.bounds.loses  # senders wait for no processor
    behind = look.lag if position.offset or place.start == "earliest" else 0
    return Lag(
        **item.row,
        declared=item.declared,
        lag=behind,
        offset=position.offset,
        oldest=entry_ids.when(look.first) if behind else "",
        kept=look.length,
        bytes=look.size,
        since=entry_ids.when(look.oldest) if look.oldest else "",
        keep=str(look.retention) if look.retention else "",
        held=look.length if is_log else look.held,
        size=0 if is_log else item.stream.partition_size,
        holds_back=item.stream.is_trimmed
        and behind > 0
        and bool(position.offset)
        and position.offset == look.lowest,
        owned=position.is_open,
        quarantined=position.quarantined,
        paused=position.is_paused,
        processed=position.processed,
        dead=position.dead,
        lost=look.lost,
        unclean=position.unclean,
    )
