"""Cut an owner off at each command that it sends to Redis.

It dies, freezes, is cut off, or has to leave, once at each command: before the command gets to
Redis, and after it was carried out but not answered. Whatever the place, the partition ends the
same: every event processed in order, each output once, one dead letter.
"""

import asyncio

import pytest
from held_role import Held
from redis.asyncio import Redis
from streams_support import driven

from rink._cancel import end
from rink.streams import App, Record, RedisUnavailable
from rink.streams.consumer.error_log import ErrorLog
from rink.streams.consumer.grant_run import ProcessorContext
from rink.streams.consumer.metrics import WorkerMetrics
from rink.streams.consumer.partition import PartitionGrant
from rink.streams.consumer.poison import PoisonSuspects
from rink.streams.consumer.reader import make_reader
from rink.streams.store import byte_limits
from rink.streams.store.store import Store

EVENTS, WINDOW, REFUSED = 30, 8, 17
PROCESSED = [n for n in range(EVENTS) if n != REFUSED]
AT_ONCE = 24


class Leg(Record):
    n: int
    case: str


class CutStore(Store):
    """Wrap a Redis so that a mishap hits its owner at the n-th command.

    Attributes:
        happens: the mishap, awaited; None for none.
        sent: how many commands there were.
        cut: set when it happens.
        runs: unset while the process is frozen, or dead.
    """

    def __init__(self, url, happens, at, *, after):
        super().__init__(Redis.from_url(url))
        self.happens, self.at, self.after = happens, at, after
        self.sent = 0
        self.cut, self.runs = asyncio.Event(), asyncio.Event()
        self.runs.set()

    async def run(self, *given, **how):
        return await self._cut(lambda: Store.run(self, *given, **how))

    async def read(self, *given, **how):
        return await self._cut(lambda: Store.read(self, *given, **how))

    async def _cut(self, ask):
        await self.runs.wait()
        self.sent += 1
        if self.sent != self.at or self.happens is None:
            return await ask()
        answer = await ask() if self.after else None
        self.cut.set()
        await self.happens()
        return answer if self.after else await ask()


class Owning:
    """Run one owner of a case's partition."""

    def __init__(self, case, token, happens=None, at=0, *, after=False):
        processor = case.app.processors["bill"]
        how = getattr(self, happens) if happens else None
        self.role, self.store = Held(token), CutStore(case.url, how, at, after=after)
        self.given_up = asyncio.Event()
        self.reader = make_reader(self.store, processor.prefetch, byte_limits.SharedMemory(2**20))
        context = ProcessorContext(
            processor=processor, store=self.store, reader=self.reader,
            metrics=WorkerMetrics("shop"), suspects=PoisonSuspects(), error_log=ErrorLog("bill"),
            halt=lambda reason: None, given_up=self.given_up,
        )  # fmt: skip
        case.stores[token] = self.store
        self.reading = asyncio.create_task(self.reader.run())
        self.grant = asyncio.create_task(PartitionGrant(context, case.place, self.role).run())

    async def dies(self):
        self.store.runs.clear()
        await self.store.runs.wait()

    freezes = naps = dies  # the first wakes up when the next one is done, or has begun

    async def is_cut_off(self):
        raise RedisUnavailable("the wire was cut", server="here")

    async def leaves(self):
        self.role.lose()

    async def close(self):
        """End for good, and not in order."""
        self.given_up.set()
        await end([self.grant, self.reading])
        await self.reader.close()
        await self.store.close()


class Case:
    """Hold one partition with its events, and its owners' work."""

    def __init__(self, url, name, kind):
        self.url, self.name = url, name
        self.app = App("shop", redis=url)
        one = {"record": Leg, "partition_by": "case", "partition_count": 1}
        self.legs = self.app.stream(f"legs-{name}", **one)
        self.bills = self.app.stream(f"bills-{name}", **one)
        self.seen, self.stores = [], {}
        how = {
            "max_uncommitted": WINDOW,
            "prefetch": 32,
            "max_attempts": 2,
            "retry_for": 0,
            "backoff": (0.0, 0.0),
            "grace": 5,
        }
        commit = "manual" if kind == "with outputs" else "auto"
        functions = {
            "one by one": self._one_by_one,
            "in a thread": self._in_thread,
            "with outputs": self._with_outputs,
        }
        self.app.processor(self.legs, name="bill", commit=commit, **how)(functions[kind])
        self.place = self.app.processors["bill"].place(0)
        self.look = Store(Redis.from_url(url))
        self.loop = asyncio.get_running_loop()

    async def _one_by_one(self, events):
        async for record in events.records():
            await self._note([record], events.token)

    def _in_thread(self, events):
        for record in events.records():
            noting = self._note([record], events.token)
            asyncio.run_coroutine_threadsafe(noting, self.loop).result()

    async def _with_outputs(self, events):
        async for batch in events.take(3).records():
            await self._note(batch, events.token)
            await events.commit([(self.bills, record) for record in batch])

    async def _note(self, records, token):
        await self.stores[token].runs.wait()
        if any(record.n == REFUSED for record in records):
            raise ValueError("nobody can process this one")
        self.seen += [(token, record.n) for record in records]
        await asyncio.sleep(0)

    async def fill(self):
        records = [self.legs.codec.encode(Leg(n=n, case=self.name)) for n in range(EVENTS)]
        place = self.place
        _, self.ids = await self.look.append(place.names, place.bounds, records, 1, True)

    async def until_done(self, token):
        """Wait until all is committed, by this owner or a later one."""
        async with asyncio.timeout(30):
            while True:
                at = await self.look.position(self.place)
                if at.offset == self.ids[-1] and at.fence >= token:
                    return
                await asyncio.sleep(0.01)

    async def outputs(self):
        key = self.bills.names.partition(0).stream
        entries = self.look.entries(key)
        return [self.bills.codec.decode(fields[b"d"]).n async for _, fields in entries]

    async def letters(self):
        return len([one async for one in self.look.entries(self.place.names.dead("bill"))])

    def numbers(self, token):
        return [n for owner, n in self.seen if owner == token]


async def undisturbed(url, kind):
    """Return how many commands an owner sends from take to close."""
    case = Case(url, "undisturbed", kind)
    await case.fill()
    owning = Owning(case, 1)
    await case.until_done(1)
    owning.role.lose()
    await owning.grant
    assert case.numbers(1) == PROCESSED
    await owning.close()
    await case.look.close()
    return owning.store.sent


async def disturbed(url, kind, happens, at, after):
    """Run one case, and check what must hold at every cut.

    Return whether there was a cut.
    """
    case = Case(url, f"{happens}-{at}-{after}", kind)
    await case.fill()
    first = Owning(case, 1, happens, at, after=after)
    cut = asyncio.create_task(first.store.cut.wait())
    done = asyncio.create_task(case.until_done(1))
    await asyncio.wait([done, cut], return_when=asyncio.FIRST_COMPLETED)
    if not cut.done():  # it is one of those with which the owner ends
        first.role.lose()
        await asyncio.wait([first.grant, cut], return_when=asyncio.FIRST_COMPLETED)
    owners = [first]
    if cut.done() and happens != "is_cut_off":
        if happens == "leaves":
            await first.grant
        owners.append(await next_of(case, first, happens))
    await case.until_done(len(owners))
    if happens == "freezes":
        await thaw(first)
    for owning in owners:
        owning.role.lose()
        if owning is not first or happens != "dies":
            await owning.grant
    for task in (done, cut):
        task.cancel()
    for owning in owners:
        await owning.close()
    await judge(case, happens, kind, len(owners))
    await case.look.close()
    return first.store.cut.is_set()


async def next_of(case, first, happens):
    """Start the next owner; the first one may thaw just after that."""
    if happens != "naps":
        return Owning(case, 2)
    second = Owning(case, 2, "freezes", at=2)
    await second.store.cut.wait()
    await thaw(first)
    second.store.runs.set()
    return second


async def thaw(first):
    """Thaw the owner, which still believes that it holds the role."""
    first.store.runs.set()
    await asyncio.sleep(0.05)


async def judge(case, happens, kind, fence):
    at = await case.look.position(case.place)
    assert (at.offset, at.fence) == (case.ids[-1], fence)
    assert (at.processed, at.dead, await case.letters()) == (len(PROCESSED), 1, 1)
    assert not at.is_open
    assert not at.quarantined
    assert await case.outputs() == (PROCESSED if kind == "with outputs" else [])
    before, after = case.numbers(1), case.numbers(2)
    if happens in ("is_cut_off", "leaves"):
        assert before + after == PROCESSED, "some event came twice, or not at all"
        assert at.unclean == 0
        return
    assert before == PROCESSED[: len(before)]
    assert after == PROCESSED[len(PROCESSED) - len(after) :]
    again = len(before) + len(after) - len(PROCESSED)
    if happens == "dies":
        assert 0 <= again <= WINDOW


IN_A_THREAD = pytest.param("in a thread", marks=pytest.mark.deep)


@pytest.mark.parametrize("kind", ["one by one", IN_A_THREAD, "with outputs"])
@pytest.mark.parametrize("happens", ["dies", "freezes", "naps", "is_cut_off", "leaves"])
def test_owner_cut_at_any_command_processes_all_in_order_once(rink_redis, happens, kind):
    """Wherever an owner is cut off, all is processed in order, written once."""
    driven(_everywhere)(rink_redis.url, happens, kind)


async def _everywhere(url, happens, kind):
    count, turns = await undisturbed(url, kind), asyncio.Semaphore(AT_ONCE)
    assert count > 12

    async def one(at, after):
        async with turns:
            try:
                return await disturbed(url, kind, happens, at, after)
            except BaseException as error:
                error.add_note(f"at command {at} of {count}, {'after' if after else 'before'} it")
                raise

    places = [(at, after) for at in range(1, count + 1) for after in (False, True)]
    cuts = await asyncio.gather(*(one(*place) for place in places), return_exceptions=True)
    for failed in (cut for cut in cuts if isinstance(cut, BaseException)):
        raise failed
    assert sum(cuts) > 0.8 * len(places), "there were fewer commands than without a cut"
