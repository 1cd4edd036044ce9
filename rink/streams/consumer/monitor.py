"""What a worker looks at now and then of the partitions that it owns: how far behind, and moved by an operator?

And of its Redis: does it evict keys? Where events are kept for a time, it also trims partitions to which nothing is sent.

An owner learns of a moved offset with its next commit. One that has nothing to do makes none: so it is looked
for here, or a reset to `earliest` would be heard of with the next event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from rink.errors import RinkError
from rink.streams.consumer.eviction_check import Evictions
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.consumer.owner import GrantOwner
from rink.streams.consumer.reader import Reader
from rink.streams.errors import OffsetMoved
from rink.streams.store.store import Store

log = logging.getLogger("rink.streams")

LOOK_EVERY_S = 2.0
COUNT_EVERY_S = 15.0
MOST = 10_000
"""A lag is counted so far: counting keeps Redis from all else, and who is so far behind is late anyway."""


async def look_out(
    store: Store, readers: Sequence[Reader], metrics: WorkerMetrics, evictions: Evictions
) -> None:
    """Look until cancelled, one partition after the other."""
    counted: WeakKeyDictionary[GrantOwner[Any], float] = WeakKeyDictionary()
    asked: float | None = None
    while True:
        if asked is None or time.monotonic() - asked >= COUNT_EVERY_S:
            asked = time.monotonic()
            await evictions.look()
        for reader in readers:
            for owner in reader.owners:
                try:
                    await _look(store, reader, owner)
                    if time.monotonic() - counted.get(owner, -COUNT_EVERY_S) >= COUNT_EVERY_S:
                        counted[owner] = time.monotonic()
                        await _count(store, reader, owner, metrics)
                except RinkError as error:  # whoever needs Redis says so, and waits
                    log.debug("%s could not be looked at: %s", owner.place.role, error)
        await asyncio.sleep(LOOK_EVERY_S)


async def _look(store: Store, reader: Reader, owner: GrantOwner[Any]) -> None:
    place, known = owner.place, owner.known.epoch
    position = await store.position(place)
    # One below it is Redis with older data: for the next commit or reconnect to find, as a take anew does not.
    if position.fence == owner.token and int(position.epoch) > int(known):
        what = f"the offset of {place.at!r} was moved to {position.offset}"
        reader.fail(owner, OffsetMoved(what))
    elif position.fence == owner.token:
        owner.pause(position.is_paused)


async def _count(
    store: Store, reader: Reader, owner: GrantOwner[Any], metrics: WorkerMetrics
) -> None:
    if owner.place.bounds.retention:  # no commit comes to trim an idle partition
        await store.trim(owner.place.names, owner.place.bounds)
    behind = await store.lag(owner.place, MOST)
    # Here, and not with the grant: of 64 partitions it takes milliseconds.
    metrics.show(owner.place)
    if owner in reader.owners:  # else it is for another worker to tell
        metrics.lag(owner.place, behind)
