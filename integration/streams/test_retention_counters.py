"""Test that a partition's counters are true after any events.

The events come in any order.
"""

import asyncio
import random

import pytest
from redis.asyncio import Redis
from retention_support import DAY_MS, add_at, redis_ms, told_size, true_size
from streams_support import Steps, place_of

from rink.redis.scripts import ScriptCall
from rink.spark.scripts import script as sparks
from rink.streams import PartitionFull
from rink.streams.retention import Retention
from rink.streams.store import entry_ids
from rink.streams.store.values import Output, PartitionBounds

LIMIT = 40
PROCESSORS = ("bill", "ship", "audit")
SEEDS = range(4)


class World:
    """Model a partition, its random events, and all it ever held.

    Attributes:
        ever: the ids of all events that were ever added.
        lost: how many events were removed before a processor had passed them; `missed` of all
            processors together.
        replays: where the partition ended when a processor was registered or moved back.
    """

    def __init__(self, redis, seed, retention, *, loses=False):
        self.rng = random.Random(seed)
        self.steps = Steps(redis)
        self.redis, self.store = redis, self.steps.store
        self.bounds = PartitionBounds(LIMIT, loses, retention)
        self.places = {
            name: place_of(processor=name).__class__(
                "orders", 3, self.steps.place.names, name, self.bounds
            )
            for name in PROCESSORS
        }
        self.names = self.steps.place.names
        self.ever, self.replays, self.lost = [], {}, {}
        self.gone = self.token = self.calls = self.missed = 0

    async def there(self):
        return [entry_id.decode() for entry_id, _ in await self.redis.xrange(self.names.stream)]

    async def offsets(self):
        return await self.store.registered(self.names)

    def records(self, count):
        return [self.rng.randbytes(self.rng.randrange(0, 200)) for _ in range(count)]

    async def note_added(self):
        """Note what was added since."""
        last = self.ever[-1] if self.ever else "0-0"
        self.ever += [
            entry_id.decode()
            for entry_id, _ in await self.redis.xrange(self.names.stream, min=f"({last}")
        ]

    async def end(self):
        return self.ever[-1] if self.ever else "0-0"

    # ── what may happen ──────────────────────────────────────────────────────────────────────

    async def append(self):
        self.calls += 1
        data = self.records(self.rng.randrange(1, 30))
        room = await self.room()
        count, _ = await self.store.append(self.names, self.bounds, data, self.calls, False)
        assert count == max(min(len(data), room), 0)

    async def publish(self):
        """Do as Spark's sink does: a staged list becomes events."""
        self.calls += 1
        data, room = self.records(self.rng.randrange(1, 15)), await self.room()
        await self.redis.rpush("staged", *data)
        args = {
            "seq": str(self.calls), "first": 0, "count": len(data), "max_count": 1000,
            "max_bytes": 1_000_000, "kept_s": 0, "bounds": self.bounds.args,
        }  # fmt: skip
        call = ScriptCall(sparks("sink/publish"), (*self.names.keys, "mark", "staged"), args)
        said, done = await self.redis.execute_command(*call.eval())
        assert done == max(min(len(data), room), 0)
        assert (said == b"full") == (done == 0)
        await self.redis.delete("staged")

    async def register(self):
        place = self.places[self.rng.choice(PROCESSORS)]
        if place.processor not in await self.offsets():
            self.replays[place.processor] = await self.end()
        await self.store.register(place)

    async def forget(self):
        if self.rng.random() < 0.1:
            name = self.rng.choice(PROCESSORS)
            await self.store.run("forget", self.places[name].keys, processor=name, force=True)
            self.replays.pop(name, None)
            self.lost.pop(name, None)

    async def commit(self):
        """Pass some events; now and then with outputs into the very partition."""
        name, offset = await self.chosen()
        behind = [
            one
            for one in await self.there()
            if entry_ids.order(one) > entry_ids.order(offset or "0-0")
        ]
        if offset is None or not behind:
            return
        self.token += 1
        taken = await self.store.take(self.places[name], self.token)
        new = behind[self.rng.randrange(min(len(behind), 60))]
        outputs = self.outputs(name)
        room = await self.room(name, new)
        try:
            await self.steps.commit(
                self.token, offset, new, self.places[name], taken.epoch, outputs=outputs
            )
        except PartitionFull:
            assert room < len(outputs)
        else:
            assert room >= len(outputs) or not outputs

    def outputs(self, name):
        target = self.places[name].names, self.bounds
        count = self.rng.choice([0, 0, 3])
        return tuple(Output(*target, ("d", data)) for data in self.records(count))

    async def requeue(self):
        name, offset = await self.chosen()
        if offset is None:
            return
        letter = await self.redis.xadd(self.names.dead(name), {"d": self.records(1)[0]})
        room = await self.room()
        keys = [self.names.dead(name), *self.names.keys]
        said, *_ = await self.store.run(
            "requeue", keys, processor=name, letter=letter.decode(), bounds=self.bounds.args
        )
        assert (said == b"ok") == (room >= 1)

    async def reset(self):
        name, offset = await self.chosen()
        if offset is None or self.rng.random() < 0.7:
            return
        to = self.rng.choice([*(await self.there()), "earliest", "latest"])
        await self.store.run("reset", self.places[name].keys, processor=name, to=to)
        if entry_ids.order((await self.offsets())[name]) < entry_ids.order(offset):
            self.replays[name] = await self.end()

    async def trim(self):
        await self.store.trim(self.names)

    async def pass_all(self):
        for name, place in self.places.items():
            await self.store.register(place)
            await self.store.run("reset", place.keys, processor=name, to="latest")

    async def chosen(self):
        offsets = await self.offsets()
        name = self.rng.choice(sorted(offsets) or [""])
        return name, offsets.get(name)

    # ── what must hold ───────────────────────────────────────────────────────────────────────

    async def room(self, mine="", moved=""):
        """Return how many events fit, counted one by one."""
        if self.bounds.loses:
            return 1000
        there, offsets = [entry_ids.order(one) for one in await self.there()], await self.offsets()
        offsets |= {mine: moved} if mine in offsets else {}
        if not offsets:
            return LIMIT - len(there)
        awaited = min(
            max(entry_ids.order(at), entry_ids.order(self.replays.get(name, "0-0")))
            for name, at in offsets.items()
        )
        return LIMIT - sum(one > awaited for one in there)

    async def check(self):
        await self.note_added()
        there, offsets = await self.there(), await self.offsets()
        assert there == self.ever[len(self.ever) - len(there) :], "only the oldest are removed"
        lowest = min(map(entry_ids.order, offsets.values()), default=None)
        gone = self.ever[self.gone : len(self.ever) - len(there)]
        self.gone += len(gone)
        unread = {
            name: sum(entry_ids.order(one) > entry_ids.order(at) for one in gone)
            for name, at in offsets.items()
        }
        assert self.bounds.loses or not [
            one for one in gone if lowest and entry_ids.order(one) >= lowest
        ]
        self.missed += sum(unread.values())
        self.lost.update({name: self.lost.get(name, 0) + count for name, count in unread.items()})
        if not there:
            return
        assert await told_size(self.redis, self.names) == await true_size(self.redis, self.names)
        for name, offset in offsets.items():
            look = await self.store.look(self.places[name])
            assert look.lag == sum(entry_ids.order(one) > entry_ids.order(offset) for one in there)
            assert look.held == LIMIT - await self.room() or self.bounds.loses
            assert look.lost == self.lost.get(name, 0)
            assert (look.length, look.removed) == (len(there), len(self.ever) - len(there))
        assert await self.redis.xlen(self.names.segments) <= len(there) + 1


def in_a_world(body):
    """Give an async test a world on an empty Redis."""

    def run(rink_redis, seed):
        async def go():
            async with Redis.from_url(rink_redis.url) as redis:
                await body(redis, seed)

        asyncio.run(go())

    run.__name__, run.__doc__ = body.__name__, body.__doc__
    return pytest.mark.parametrize("seed", SEEDS)(run)


class Past(World):
    """Model a world whose events were sent within the last ten days.

    They are in order.
    """

    async def begin(self):
        self.now = await redis_ms(self.redis)
        self.at = self.now - 10 * DAY_MS

    async def append(self):
        for record in self.records(self.rng.randrange(1, 10)):
            self.at = min(self.at + self.rng.randrange(1, DAY_MS // 20), self.now)
            sequence = len(self.ever) + self.calls
            self.calls += 1
            await add_at(self.redis, self.names, self.bounds, [(f"{self.at}-{sequence}", record)])
            await self.note_added()  # each: the next one may have the first ones removed

    def outputs(self, name):
        return ()


async def live(world, names, times):
    """Run random changes, and check all counters after each."""
    for _ in range(times):
        await getattr(world, world.rng.choice(names))()
        await world.check()


@in_a_world
async def test_counters_are_true_with_retention_by_bytes(redis, seed):
    world = World(redis, seed, Retention(size=6000))
    names = ["append", "publish", "commit", "commit", "register", "forget", "requeue", "reset"]
    await live(world, ["append", "commit", "trim", *names], 120)
    await world.pass_all()
    await world.trim()
    _, size = await true_size(redis, world.names)
    assert size <= 6000 * 1.125 + 201


@in_a_world
async def test_lost_events_of_a_log_are_counted(redis, seed):
    """Lost events of a log are counted.

    No sender waits: with trim="oldest", retention alone decides the trimming.
    """
    world = World(redis, seed, Retention(size=6000), loses=True)
    world.outputs = lambda name: ()
    names = ["append", "append", "publish", "commit", "register", "forget", "requeue", "reset"]
    await live(world, [*names, "trim"], 120)
    assert world.missed > 0
    assert (await true_size(redis, world.names))[1] <= 6000 * 1.125 + 201


@in_a_world
async def test_counters_are_true_with_retention_by_time(redis, seed):
    """The counters stay true with retention by time.

    Of ten days most is too old. Events younger than a week stay, whoever has passed them.
    """
    world = Past(redis, seed, Retention(7 * DAY_MS))
    await world.begin()
    names = ["append", "append", "commit", "commit", "register", "forget", "reset", "trim"]
    await live(world, names, 120)
    there, edge = await world.there(), world.now - 7 * DAY_MS
    young = [one for one in world.ever if entry_ids.order(one)[0] > edge + 60_000]
    assert set(young) <= set(there)
    await world.pass_all()
    await world.trim()
    old = [one for one in await world.there() if entry_ids.order(one)[0] < edge]
    assert not old or entry_ids.order(old[-1])[0] - entry_ids.order(old[0])[0] <= 7 * DAY_MS / 64
