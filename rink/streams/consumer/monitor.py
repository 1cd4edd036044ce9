"""Monitor a worker's partitions: lag, moved offsets, pauses, evictions.

An owner learns of a moved offset with its next commit. An idle owner makes no commit, so its offset
is checked here. Without that, a reset to `earliest` would have no effect before the next event.
With retention, idle partitions are also trimmed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from rink.errors import RinkError
from rink.event_loops import loop_time
from rink.streams.consumer.eviction_check import Evictions
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.consumer.owner import GrantOwner
from rink.streams.consumer.reader import Reader
from rink.streams.errors import OffsetMoved
from rink.streams.store.store import Store

log = logging.getLogger("rink.streams")

CHECK_INTERVAL_S = 2.0
LAG_INTERVAL_S = 15.0
MAX_COUNTED = 10_000
"""The limit for counting a lag, since Redis does nothing else while it counts."""


async def monitor_partitions(
    store: Store, readers: Sequence[Reader], metrics: WorkerMetrics, evictions: Evictions
) -> None:
    """Check all partitions until cancelled, one after the other."""
    counted: WeakKeyDictionary[GrantOwner[Any], float] = WeakKeyDictionary()
    checked: float | None = None
    while True:
        if checked is None or loop_time() - checked >= LAG_INTERVAL_S:
            checked = loop_time()
            await evictions.look()
        for reader in readers:
            for owner in reader.owners:
                try:
                    await _check(store, reader, owner)
                    if loop_time() - counted.get(owner, -LAG_INTERVAL_S) >= LAG_INTERVAL_S:
                        counted[owner] = loop_time()
                        await _count(store, reader, owner, metrics)
                except RinkError as error:  # the owner and the reader log such errors themselves
                    log.debug("%s could not be checked: %s", owner.place.role, error)
        await asyncio.sleep(CHECK_INTERVAL_S)


async def _check(store: Store, reader: Reader, owner: GrantOwner[Any]) -> None:
    place, known = owner.place, owner.known.epoch
    position = await store.position(place)
    # A lower epoch means that Redis has older data. The next commit or reconnect finds that. The
    # take that follows OffsetMoved would not.
    if position.fence == owner.token and int(position.epoch) > int(known):
        move = f"the offset of {place.at!r} was moved to {position.offset}"
        reader.fail(owner, OffsetMoved(move))
    elif position.fence == owner.token:
        owner.pause(position.is_paused)


async def _count(
    store: Store, reader: Reader, owner: GrantOwner[Any], metrics: WorkerMetrics
) -> None:
    if owner.place.bounds.retention:  # commits trim, but an idle partition has none
        await store.trim(owner.place.names, owner.place.bounds)
    lag = await store.lag(owner.place, MAX_COUNTED)
    # Showing the counters of 64 partitions takes milliseconds, too long for the grant.
    metrics.show(owner.place)
    if owner in reader.owners:  # otherwise another worker shows the lag
        metrics.lag(owner.place, lag)
