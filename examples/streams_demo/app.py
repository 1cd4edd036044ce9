"""The app: this is what a user of `rink.streams` writes. `rink worker streams_demo.app:app` runs it.

Two processors work out the same thing, in the two ways there are. `exact` keeps its results in
Redis: outputs and offset go in one step, so each leg counts exactly once. `plain` keeps them
elsewhere: a leg may come again after a crash, and the ledger says which.
"""

import asyncio
import time

from redis.asyncio import RedisCluster

from rink.streams import App, BlockingEvents, Events
from streams_demo.here import Here
from streams_demo.legs import Aircraft, Leg, State
from streams_demo.outputs import newest

PARTITIONS = 16
WINDOW = 100  # legs given and not committed: at most so many come again after a crash
BATCH = 50
WORK_S = 0.001  # for each leg; stands for the work, and is where a freeze or a kill hits

here = Here.read()
app = App(
    "flights",
    redis=(lambda: RedisCluster.from_url(here.redis)) if here.cluster else here.redis,
    etcd=here.etcd,
    ttl=float(here.ttl),
)
legs = app.stream("legs", record=Leg, partition_by=lambda leg: leg.key, partition_count=PARTITIONS)
# The same keys in as many partitions: the states of an aircraft are where its legs are.
states = app.stream("states", record=State, partition_by="key", partition_count=PARTITIONS)

# A new worker waits longer for partitions than the one that it replaces needs to leave.
SETTINGS = {"window": WINDOW, "rebalance_delay": float(here.ttl)}


async def exact(events: Events[Leg]) -> None:
    """Exactly once. What this partition's aircraft have come to is what was sent out last."""
    with here.noted("exact", events):
        fleet = await newest(states, events.partition)
        async for batch in events.take(BATCH).records():
            outputs = []
            for leg in batch:
                fleet[leg.key] = fleet.get(leg.key, Aircraft()).after(leg)
                outputs.append(State.of(leg.key, fleet[leg.key], here.worker, events.token))
            await asyncio.sleep(WORK_S * len(batch))
            if here.careless:
                await states.send_many(outputs)  # two steps: what if we end between them?
                await asyncio.sleep(WORK_S * len(batch))
                outputs = []
            await events.commit((states, output) for output in outputs)


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
