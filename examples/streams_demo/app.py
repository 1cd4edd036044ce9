"""Define the app, as a user of `rink.streams` does.

`rink worker streams_demo.app:app` runs it. Two processors compute the same states in different
ways. `exact` keeps its results in Redis: outputs and offset go in one step, so each leg counts
exactly once. `plain` keeps them elsewhere: a leg may come again after a crash, and the ledger says
which legs are done.
"""

import asyncio
import time
from typing import Any

from redis.asyncio import RedisCluster

from rink.streams import App, BlockingEvents, Events, Stream
from streams_demo.here import WORK_S, WorkerHere
from streams_demo.legs import Aircraft, Fleet, Leg, State
from streams_demo.outputs import entries

Output = tuple[Stream[Any], Any]

PARTITIONS = 16
WINDOW = 64  # uncommitted legs, all of which may come again after a crash
BATCH = 32
SAVE_EVERY = 1000

here = WorkerHere.read()
app = App(
    "flights",
    redis=(lambda: RedisCluster.from_url(here.redis)) if here.cluster else here.redis,
    etcd=here.etcd,
    ttl=float(here.ttl),
)
legs = app.stream("legs", record=Leg, partition_by=lambda leg: leg.key, partition_count=PARTITIONS)
# The same keys in as many partitions, so that an aircraft's states lie beside its legs.
states = app.stream("states", record=State, partition_by="key", partition_count=PARTITIONS)
fleets = app.stream(
    "fleets",
    record=Fleet,
    partition_by="key",
    partition_count=PARTITIONS,
    partition_size=1,  # the newest is enough
    trim="oldest",
)

SETTINGS = {
    "max_uncommitted": WINDOW,
    # A new worker waits longer for partitions than the one that it replaces needs to leave.
    "rebalance_delay": 2.0,
}


async def exact(events: Events[Leg]) -> None:
    """Process each leg exactly once.

    The states of the aircraft are those of the last commit.
    """
    with here.noted("exact", events):
        fleet, unsaved = await restored(events.partition)
        async for batch in events.take(BATCH).records():
            outputs: list[Output] = []
            for leg in batch:
                fleet[leg.key] = fleet.get(leg.key, Aircraft()).after(leg)
                state = State.of(leg.key, fleet[leg.key], here.name, events.token)
                outputs.append((states, state))
            unsaved += len(batch)
            if unsaved >= SAVE_EVERY:
                outputs.append((fleets, Fleet(key=leg.key, aircraft=fleet)))
                unsaved = 0
            await asyncio.sleep(WORK_S * len(batch))
            await put_out(events, outputs)


async def restored(partition: int) -> tuple[dict[str, Aircraft], int]:
    """Return the aircraft, and how many states the last `Fleet` lacks.

    From our grant on no other worker can add to the partition. So these states belong to the
    offset.
    """
    fleet: dict[str, Aircraft] = {}
    saved_at = ""
    async for event in entries(fleets, partition):
        fleet, saved_at = dict(event.record.aircraft), event.id
    newer = 0
    # States of the same step as the fleet are in it already, and change nothing.
    async for event in entries(states, partition, since=saved_at):
        fleet[event.record.key] = event.record.aircraft
        newer += 1
    return fleet, newer


async def put_out(events: Events[Leg], outputs: list[Output]) -> None:
    """Send outputs and commit in one step: both happen, or neither."""
    if here.careless:
        for stream in (states, fleets):
            await stream.send_many(record for target, record in outputs if target is stream)
        await asyncio.sleep(WORK_S * len(outputs))  # a kill here doubles the outputs
        outputs = []
    await events.commit(outputs)


@app.processor(legs, middleware=[here.at_work("plain")], **SETTINGS)
def plain(events: BlockingEvents[Leg]) -> None:
    """Process each leg at least once, in a thread.

    The ledger knows which legs are done, and refuses workers that are no longer the owner.
    """
    with here.noted("plain", events):
        fleet = here.ledger.take(events.partition, events.token)
        for batch in events.take(BATCH).records():
            entries, again = [], []
            for leg in batch:
                before = fleet.get(leg.key, Aircraft())
                if leg.number <= before.number:
                    again.append((leg.key, leg.number))
                else:
                    fleet[leg.key] = before.after(leg)
                    entries.append((leg.key, fleet[leg.key]))
            time.sleep(WORK_S * len(batch))
            here.ledger.write(events.partition, events.token, entries, again)


# On a cluster each partition has a slot of its own, and one step cannot write to two.
if not here.cluster:
    app.processor(legs, commit="manual", middleware=[here.at_work("exact")], **SETTINGS)(exact)
