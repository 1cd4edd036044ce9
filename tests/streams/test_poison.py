"""Give turns to partitions with suspects.

One has a turn at a time, the most suspected ones last, and none waits without end.
"""

import asyncio

from jumping import jumping, pass_time

from rink.streams.consumer.poison import PoisonSuspects


class Owning:
    def __init__(self, name):
        self.name = name
        self.is_lost = False


class Turns:
    """Owners that take turns, with a list of their steps."""

    def __init__(self):
        self.suspects = PoisonSuspects()
        self.did = []

    def expected(self, name, begun_us, *, is_suspect=False):
        owner = Owning(name)
        self.suspects.expect(owner, is_suspect=is_suspect, begun_us=begun_us)
        return owner

    async def take(self, owner, seconds=1.0):
        if await self.suspects.begin(owner):
            self.did.append(f"{owner.name} begins")
            await pass_time(seconds)
            self.did.append(f"{owner.name} ends")
            self.suspects.end()
            return True
        return False


@jumping
async def test_one_at_a_time_and_whom_redis_heard_of_last_goes_last():
    turns = Turns()
    owners = [turns.expected("last", 9), turns.expected("first", 1), turns.expected("then", 5)]
    assert await asyncio.gather(*map(turns.take, owners)) == [True] * 3
    assert turns.did == [
        f"{name} {what}" for name in ("first", "then", "last") for what in ("begins", "ends")
    ]


@jumping
async def test_who_was_marked_at_a_crash_goes_after_those_who_were_not():
    turns = Turns()
    suspect, other = turns.expected("suspect", 1, is_suspect=True), turns.expected("other", 9)
    await asyncio.gather(turns.take(suspect), turns.take(other))
    assert turns.did[0] == "other begins"


@jumping
async def test_only_the_first_turn_waits_for_those_before():
    turns = Turns()
    first, last = turns.expected("first", 1), turns.expected("last", 9)
    assert await turns.take(first)
    again, then = asyncio.create_task(turns.take(first)), asyncio.create_task(turns.take(last))
    await asyncio.gather(again, then)
    assert turns.did[2:] == ["first begins", "first ends", "last begins", "last ends"]


@jumping
async def test_who_is_lost_is_waited_for_no_more_and_gets_no_turn():
    turns = Turns()
    first, last = turns.expected("first", 1), turns.expected("last", 9)
    waiting = asyncio.create_task(turns.take(last))
    await pass_time(1)
    assert not turns.did
    first.is_lost = True
    turns.suspects.forget(first)
    assert await waiting
    assert not await turns.take(first)


@jumping
async def test_lost_one_stops_waiting_while_another_has_its_turn():
    turns = Turns()
    first, last = turns.expected("first", 1), turns.expected("last", 9)
    working = asyncio.create_task(turns.take(first, seconds=60))
    waiting = asyncio.create_task(turns.take(last))
    await pass_time(1)
    last.is_lost = True
    before = asyncio.get_running_loop().time()
    assert not await waiting
    assert asyncio.get_running_loop().time() - before < 0.2
    await working


@jumping
async def test_however_long_the_turns_take_the_last_comes_last():
    turns = Turns()
    owners = [turns.expected(f"{time:02}", time) for time in reversed(range(12))]
    await asyncio.gather(*(turns.take(one, seconds=7 if one.name == "00" else 1) for one in owners))
    assert turns.did[::2] == [f"{time:02} begins" for time in range(12)]


@jumping
async def test_who_is_lost_amid_its_wait_for_the_turn_gets_none():
    turns = Turns()
    first, last = turns.expected("first", 1), turns.expected("last", 9)
    working = asyncio.create_task(turns.take(first))
    waiting = asyncio.create_task(turns.take(last))
    await pass_time(0.95)
    last.is_lost = True  # checked only at intervals
    await working
    assert not await waiting
    assert await turns.take(turns.expected("other", 5))


@jumping
async def test_who_never_asks_holds_nobody_up_for_long():
    turns = Turns()
    turns.expected("at something else", 1)
    last = turns.expected("last", 9)
    before = asyncio.get_running_loop().time()
    assert await turns.take(last)
    assert 5 <= asyncio.get_running_loop().time() - before - 1 < 5.2
