"""The app: this is what a user of `rink.streams` writes. `rink worker streams_demo.app:app` runs it.

Two processors work out the same thing, in the two ways there are. `exact` keeps its results in
Redis: outputs and offset go in one step, so each leg counts exactly once. `plain` keeps them
elsewhere: a leg may come again after a crash, and the ledger says which.
"""

import asyncio
import time
from typing import Any

from redis.asyncio import RedisCluster

from rink.streams import App, BlockingEvents, Events, Stream
from streams_demo.here import WORK_S, Here
from streams_demo.legs import Aircraft, Fleet, Leg, State
from streams_demo.outputs import entries

Output = tuple[Stream[Any], Any]

PARTITIONS = 16
WINDOW = 64  # legs given and not committed: at most so many come again after a crash
BATCH = 32
SAVE_EVERY = 1000

here = Here.read()
app = App(
    "flights",
    redis=(lambda: RedisCluster.from_url(here.redis)) if here.cluster else here.redis,
    etcd=here.etcd,
    ttl=float(here.ttl),
)
legs = app.stream("legs", record=Leg, partition_by=lambda leg: leg.key, partition_count=PARTITIONS)
# The same keys in as many partitions: what is known of an aircraft is where its legs are.
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
    """Exactly once. How far the aircraft have come is what was put out with the last commit."""
    with here.noted("exact", events):
        fleet, unsaved = await restored(events.partition)
        async for batch in events.take(BATCH).records():
            outputs: list[Output] = []
            for leg in batch:
                fleet[leg.key] = fleet.get(leg.key, Aircraft()).after(leg)
                state = State.of(leg.key, fleet[leg.key], here.worker, events.token)
                outputs.append((states, state))
            unsaved += len(batch)
            if unsaved >= SAVE_EVERY:
                outputs.append((fleets, Fleet(key=leg.key, aircraft=fleet)))
                unsaved = 0
            await asyncio.sleep(WORK_S * len(batch))
            await put_out(events, outputs)


async def restored(partition: int) -> tuple[dict[str, Aircraft], int]:
    """How far each aircraft has come, and how many states are newer than the last `Fleet`.

    Nobody else can add to the partition from our grant on, so this is what belongs to the offset.
    """
    fleet: dict[str, Aircraft] = {}
    saved_at = ""
    async for event in entries(fleets, partition):
        fleet, saved_at = dict(event.record.aircraft), event.id
    newer = 0
    # Those that came in one step with it are in it, and change nothing.
    async for event in entries(states, partition, since=saved_at):
        fleet[event.record.key] = event.record.aircraft
        newer += 1
    return fleet, newer


async def put_out(events: Events[Leg], outputs: list[Output]) -> None:
    """Send outputs and commit: in one step, so that either both happen or neither."""
    if here.careless:
        for stream in (states, fleets):
            await stream.send_many(record for its, record in outputs if its is stream)
        await asyncio.sleep(WORK_S * len(outputs))  # what if we end here?
        outputs = []
    await events.commit(outputs)


@app.processor(legs, middleware=[here.at_work("plain")], **SETTINGS)
def plain(events: BlockingEvents[Leg]) -> None:
    """At least once, in a thread. The ledger knows what is done, and refuses who is not the owner."""
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
