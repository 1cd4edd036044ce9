"""Test dead letters as a stream.

A processor reads the letters of another one in order, and removes none.
"""

import pytest
from workers_support import QUICK, Leg, pass_time, until, until_true, with_shop

from rink.errors import ConfigError, UsageError
from rink.streams import DeadLetter, Worker, admin

ONCE = {"max_attempts": 1, "retry_for": 0, "breaker": None, "backoff": (0.001, 0.01), **QUICK}


def failing(shop, fails=lambda leg: True, **given):
    """Declare `note`, which gives up the legs that fail, and notes the others."""

    @shop.app.processor(shop.legs, **ONCE | given)
    async def note(events):
        async for leg in events.records():
            if fails(leg):
                raise ValueError(f"no leg {leg.n}")
            shop.seen.append((leg.who, leg.n))

    return note


def reading(shop, **given):
    """Declare `alert`, which reads the letters of `note`.

    Return the list of the letters that it gets.
    """
    letters = []

    @shop.app.processor(shop.legs.dead_letters("note"), **QUICK | given)
    async def alert(events):
        async for event in events:
            letters.append((events.partition, event.id, event.record))

    return letters


def numbers(letters):
    return [letter.record.n for _, _, letter in letters]


async def kept(shop):
    """Return the letters that still lie in Redis."""
    return (await admin.dead_letters(shop.app, processor="note")).letters


@with_shop()
async def test_processor_is_given_letters_with_what_they_say(shop):
    failing(shop, lambda leg: leg.n % 2)
    letters = reading(shop)
    async with shop.workers("w"):
        sent = [await shop.legs.send(Leg(n=n, who="ann")) for n in range(5)]
        await until(lambda: len(letters) == 2)
    (number, _, first), (_, _, second) = letters
    assert number == shop.partition("ann")
    assert first.record == Leg(n=1, who="ann")
    assert (first.event, first.error, first.attempts, first.processor) == (
        sent[1], "ValueError: no leg 1", 1, "note",
    )  # fmt: skip
    assert "in note" in first.trace
    assert second.event == sent[3]
    assert shop.numbers("ann") == [0, 2, 4]


@with_shop()
async def test_letter_that_does_not_decode_has_its_bytes(shop):
    failing(shop)
    letters = reading(shop)
    async with shop.workers("w"):
        await shop.redis.xadd(shop.names(1).stream, {"d": b'\xff{"n":'})
        await until(lambda: letters)
    [(number, _, letter)] = letters
    assert number == 1
    assert letter.record == b'\xff{"n":'
    assert letter.error.startswith("RecordError: ")


@with_shop(partition_size=40)
async def test_reading_letters_removes_none(shop):
    """Reading letters removes none, however many there are.

    The bound of a stream's length does not apply to its letters.
    """
    failing(shop)
    letters = reading(shop)
    async with shop.workers("w"):
        await shop.send(*range(80))
        await until(lambda: len(letters) == 80)
        await until_true(lambda: committed(shop, "alert", 80))
    assert [one.event for one in await kept(shop)] == [letter.event for *_, letter in letters[-20:]]
    assert (await admin.dead_letters(shop.app)).total == 80


async def committed(shop, processor, count):
    return sum(one.processed for one in await admin.lag(shop.app, processor=processor)) == count


async def given_up(shop, count):
    return (await admin.dead_letters(shop.app)).total == count


@with_shop()
async def test_requeued_and_discarded_letters_are_no_trouble_for_a_reader(shop):
    """Letters that are requeued or discarded do not disturb a reader.

    The letter at the reader's offset is gone, also when another worker takes the partition.
    """
    is_mended = []
    failing(shop, lambda leg: not is_mended)
    letters = reading(shop)
    async with shop.workers("w1") as (start, stop):
        await shop.send(0, 1, 2)
        await until(lambda: len(letters) == 3)
        await until_true(lambda: committed(shop, "alert", 3))
        is_mended.append(True)
        [requeued] = await admin.requeue(shop.app, letters[2][1], processor="note")
        assert requeued.partition == letters[2][0]
        await until(lambda: shop.numbers("a") == [2])
        await start("w2")
        await stop("w1")
        is_mended.clear()
        await shop.send(3)
        await until(lambda: numbers(letters) == [0, 1, 2, 3])
        await until_true(lambda: committed(shop, "alert", 4))
        await admin.discard(shop.app)
        await start("w3")
        await stop("w2")
        await shop.send(4)
        await until(lambda: numbers(letters) == [0, 1, 2, 3, 4])
        assert [one.quarantined for one in await admin.lag(shop.app)] == [""] * 8


@with_shop()
async def test_letters_come_once_and_in_order_over_hand_overs(shop):
    failing(shop)
    letters = reading(shop)
    async with shop.workers("w0", "w1") as (start, stop):
        for number in range(4):
            await shop.send_keys(20)
            await start(f"w{number + 2}")
            await stop(f"w{number}")
        await until(lambda: len(letters) >= 80)
        await until_true(lambda: committed(shop, "alert", 80))
    assert len({(number, letter_id) for number, letter_id, _ in letters}) == len(letters) == 80
    by_partition = {}
    for number, letter_id, _ in letters:
        by_partition.setdefault(number, []).append(tuple(map(int, letter_id.split("-"))))
    assert all(ids == sorted(ids) for ids in by_partition.values())


@with_shop()
async def test_reader_that_fails_is_quarantined_and_writes_no_letters(shop):
    failing(shop, lambda leg: leg.n < 2)
    passed = []

    @shop.app.processor(shop.legs.dead_letters("note"), **ONCE)
    async def alert(events):
        async for letter in events.records():
            if letter.record.n == 0:
                raise ValueError("nobody answers")
            passed.append(letter.record.n)

    number, stream = shop.partition("a"), "legs:dead:note"
    async with shop.workers("w"):
        await shop.send(0, 1, 2)
        reason = await until_true(lambda: quarantined(shop, number))
        assert "nobody answers" in reason
        await until(lambda: shop.numbers("a") == [2])
        [skipped] = await admin.unquarantine(shop.app, processor="alert", skip=True)
        assert (skipped.stream, skipped.skipped) == (stream, (await kept(shop))[0].id)
        await until(lambda: passed == [1])
    assert [one.record for one in await kept(shop)] == [
        '{"n":0,"who":"a","note":""}', '{"n":1,"who":"a","note":""}',
    ]  # fmt: skip
    assert [key async for key in shop.redis.scan_iter("*:dead:note:dead:*")] == []


async def quarantined(shop, number):
    [one] = await admin.lag(shop.app, processor="alert", partition=number)
    return one.quarantined


@with_shop()
async def test_operators_see_and_move_a_reader_as_any_processor(shop):
    failing(shop)
    letters = reading(shop)
    async with shop.workers("w"):
        await shop.send(*range(5))
        await until(lambda: len(letters) == 5)
        await until_true(lambda: committed(shop, "alert", 5))
        number = shop.partition("a")
        [lag] = await admin.lag(shop.app, processor="alert", partition=number)
        assert (lag.stream, lag.lag, lag.kept, lag.size) == ("legs:dead:note", 0, 5, 0)
        assert lag.owned
        assert not lag.holds_back
        [owners] = await admin.owners(shop.app, processor="alert")
        assert {one.owner for one in owners.partitions} == {"w"}
        await admin.reset(shop.app, "alert", "earliest", partition=number)
        await until(lambda: numbers(letters) == [*range(5), *range(5)])
    await admin.forget_group(shop.app, "alert")
    assert len(await kept(shop)) == 5


@with_shop()
async def test_letters_can_be_read_without_a_processor(shop):
    failing(shop)
    async with shop.workers("w"):
        await shop.send(0, 1)
        await until_true(lambda: shop.dead("note", shop.partition("a")))
    dead = shop.legs.dead_letters("note")
    assert dead is shop.legs.dead_letters("note")
    found = [event async for event in dead.read(shop.partition("a"))]
    assert [one.record.record.n for one in found] == [0, 1]
    rest = dead.read(shop.partition("a"), after=found[0].id)
    assert [letter.record.record.n async for letter in rest] == [1]


@with_shop()
async def test_reader_that_begins_with_the_latest_is_given_later_ones(shop):
    failing(shop)
    async with shop.workers("w"):
        await shop.send(0, 1)
        await until_true(lambda: given_up(shop, 2))
    letters = reading(shop, start="latest")
    async with shop.workers("w"):
        await shop.send(2)
        await until(lambda: letters)
        await until_true(lambda: committed(shop, "alert", 1))
    assert numbers(letters) == [2]


@with_shop()
async def test_letters_of_an_unknown_processor_are_refused_at_the_start(shop):
    reading(shop)
    with pytest.raises(ConfigError, match="it has none"):
        await Worker(shop.app).run()


@with_shop()
async def test_letters_of_a_processor_of_another_program_are_read(shop):
    """Letters of a processor of another program are read.

    This processor may be known to Redis only. If it is forgotten there, its letters can still be
    read.
    """
    failing(shop)
    async with shop.workers("w"):
        await shop.send(0)
        await until_true(lambda: shop.dead("note", shop.partition("a")))
    letters = reading(shop)
    del shop.app.processors["note"]
    async with shop.workers("w"):
        await until(lambda: len(letters) == 1)
    await admin.forget_group(shop.app, "note")
    await admin.reset(shop.app, "alert", "earliest")
    async with shop.workers("w"):
        await until(lambda: len(letters) == 2)


@with_shop()
async def test_nobody_but_its_processor_sends_letters(shop):
    dead = shop.legs.dead_letters("note")
    letter = DeadLetter(record=Leg(n=0, who="a"))
    for refused in (dead.send(letter), dead.send_many([letter]), dead.send(Leg(n=0, who="a"))):
        with pytest.raises(UsageError, match="written by its commits alone: send to 'legs'"):
            await refused
    failed = []

    @shop.app.processor(shop.legs, commit="manual", **ONCE)
    async def note(events):
        async for _ in events:
            try:
                await events.commit([(dead, letter)])
            except UsageError as error:
                failed.append(error)
                await events.commit()

    async with shop.workers("w"):
        await shop.send(0)
        await until(lambda: failed)
    assert await shop.dead("note", shop.partition("a")) == []


@with_shop()
async def test_names_of_any_kind_have_their_own_letters(shop):
    """A processor named as a part of a key reaches into nobody else's."""
    seen = {}
    for name in ("a:dead:b", "ünï/{x}", "b"):

        @shop.app.processor(shop.legs, name=name, **ONCE)
        async def fail(events):
            async for _ in events:
                raise ValueError("no")

        @shop.app.processor(shop.legs.dead_letters(name), name=f"{name}, read", **QUICK)
        async def read(events, name=name):
            async for letter in events.records():
                seen.setdefault(name, []).append((letter.processor, letter.record.n))

    async with shop.workers("w"):
        await shop.send(7)
        await until(lambda: len(seen) == 3)
        await pass_time(0.05)
    assert seen == {name: [(name, 7)] for name in seen}
