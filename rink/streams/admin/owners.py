"""Find each partition's owner, and the worker that would take it over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import attrs

from rink import aio
from rink.inspect.group_status import GroupStatus
from rink.inspect.read_group import fail_refused, read_status
from rink.inspect.standby import standbys
from rink.streams.admin.targets import ProcessorPartition, each, find, store_of
from rink.streams.store.keys import OF_SPARK
from rink.streams.store.values import Position

if TYPE_CHECKING:
    from rink.streams.app import App


@attrs.frozen(kw_only=True)
class PartitionOwner:
    """Show one partition of a processor, by etcd and by Redis.

    Attributes:
        owner: the worker that owns it by the group's newest version; None if no worker owns it, or
            if its owner is gone.
        standby: the next owner if only the owner were gone; None if there is no other worker.
        draining: workers that have lost the partition and not released it; the owner waits for
            them.
        token: the highest fencing token that Redis has seen; 0 if no worker has taken it.
        is_open: the last owner in Redis has not shut down cleanly.
        quarantined: why the partition is quarantined; "" if it is not.
        paused: an operator has paused the processor here.
    """

    partition: int
    owner: str | None
    standby: str | None
    draining: tuple[str, ...]
    token: int
    is_open: bool
    quarantined: str
    paused: bool


@attrs.frozen(kw_only=True)
class Owners:
    """Show a processor's workers and partitions.

    Attributes:
        declared: the app has this processor.
        group: the name of its group in etcd, for `rink status`.
        version: the group's version; 0 before the first one.
        settled: the group is settled, as in `rink status`; None if that is unknown.
        workers: all members, oldest first, including members that wait for a rank.
    """

    processor: str
    stream: str
    declared: bool
    group: str
    version: int
    settled: bool | None
    workers: tuple[str, ...]
    partitions: tuple[PartitionOwner, ...]

    @property
    def is_sparks(self) -> bool:
        """Return whether this is a query of Spark, which has no workers."""
        return not self.declared and self.processor.startswith(OF_SPARK)


async def owners(
    app: App,
    *,
    processor: str | None = None,
    stream: str | None = None,
    partition: int | None = None,
) -> tuple[Owners, ...]:
    """Return the owner and the standby of each partition, by processor.

    This changes nothing. The processor may be one that only Redis knows.

    Raises:
        ConfigError: there is no such processor, stream or partition.
        StateError: Redis has another number of partitions than the app.
        RedisError, EtcdError: a call to Redis or etcd failed.
    """
    store = await store_of(app)
    items = await find(app, processor=processor, stream=stream, partition=partition)
    positions = await each(lambda item: store.position(item.place), items)
    groups: dict[tuple[str, str], list[tuple[ProcessorPartition, Position]]] = {}
    for item, position in zip(items, positions, strict=True):
        groups.setdefault((item.place.processor, item.place.stream), []).append((item, position))
    etcd = app.etcd() if callable(app.etcd) else app.etcd
    async with aio.Session(etcd, ttl=app.ttl, **app.session) as session:
        if session.etcd is not etcd:
            fail_refused(session.etcd)
        statuses = await each(
            lambda name: asyncio.to_thread(read_status, session.etcd, session.prefix, name),
            [f"{app.name}/{processor}" for processor, _ in groups],
        )
    return tuple(
        _owners(status, places) for status, places in zip(statuses, groups.values(), strict=True)
    )


def _owners(status: GroupStatus, places: list[tuple[ProcessorPartition, Position]]) -> Owners:
    first = places[0][0]
    who = standbys(status, [item.place.role for item, _ in places])
    workers = tuple(member.name for member in status.members)
    return Owners(
        processor=first.place.processor,
        stream=first.place.stream,
        declared=first.declared,
        group=status.group,
        version=status.version,
        settled=status.settled,
        workers=workers,
        partitions=tuple(
            PartitionOwner(
                partition=item.place.number,
                owner=owner if (owner := who[item.place.role].owner) in workers else None,
                standby=who[item.place.role].next,
                draining=tuple(m.name for m in status.members if item.place.role in m.draining),
                token=position.fence,
                is_open=position.is_open,
                quarantined=position.quarantined,
                paused=position.is_paused,
            )
            for item, position in places
        ),
    )
