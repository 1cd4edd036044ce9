"""Hold each step on a partition to its promises.

They are what it does, what it refuses, and that it may be repeated.

The tests run on a Redis in memory and on a real one: import them with `*` where a fixture
`rink_redis` gives the server.
"""

import asyncio

import pytest
from steps_support import Steps, output, place_of, stepping

from rink.errors import StaleToken, StateError
from rink.streams import (
    PartitionFull,
    RedisError,
    RedisRolledBack,
)
from rink.streams.errors import OffsetMoved
from rink.streams.store import store as store_module
from rink.streams.store.values import OwnerMemory

BIG = 2**53 + 1
"""A token that a Lua number cannot hold: it would become 2**53."""
ODD_TEXT = 'a "quoted" \\back\\slash, {"json": [1]}, %d, ü 漢 🦊, \t\n\0'
ODD_BYTES = bytes(range(256))


@stepping
async def test_first_owner_begins_before_the_first_event(steps, server):
    ids = await steps.add(3)
    taken = await steps.take(7, first=2)
    assert (taken.offset, taken.epoch, taken.careful, taken.quarantined) == ("0-0", "0", "", "")
    assert [entry_id.decode() for entry_id, _ in taken.first] == ids[:2]


@stepping
async def test_latest_begins_behind_what_is_there_when_it_is_registered(steps, server):
    place = place_of(start="latest")
    [old] = await steps.add(1)
    assert await steps.store.register(place) == old
    await steps.add(1)
    assert (await steps.take(7, place)).offset == old


@stepping
async def test_owner_with_a_lower_token_is_refused_in_every_step(steps, server):
    """The tokens differ by less than a Lua number can tell."""
    store, place, [one, two] = steps.store, steps.place, await steps.add(2)
    await steps.take(BIG - 1)
    await steps.take(BIG)
    for refused in (
        steps.take(BIG - 1),
        steps.commit(BIG - 1, "0-0", one),
        steps.commit(BIG - 1, "0-0", one, outputs=(output(),)),
        store.extend(place, BIG - 1, "0", two),
        store.mark(place, BIG - 1, "0", one),
        store.quarantine(place, BIG - 1, "0", "no"),
        store.close_place(place, BIG - 1),
        store.accept(place, BIG - 1),
    ):
        with pytest.raises(StaleToken) as caught:
            await refused
        assert caught.value.token == BIG - 1
    assert (await steps.position()).offset == "0-0"
    assert await steps.redis.exists("out") == 0
    await steps.commit(BIG, "0-0", two, outputs=(output(),))
    await store.extend(place, BIG, "0", two)
    await store.mark(place, BIG, "0", two)
    await store.close_place(place, BIG)
    await store.quarantine(place, BIG, "0", "for a test")
    await store.accept(place, BIG)
    assert await steps.redis.hget(place.at, "fence") == str(BIG).encode()


@stepping
async def test_steps_odd_names_and_bytes_arrive_unchanged(steps, server):
    store, place = steps.store, place_of(processor=ODD_TEXT)
    _, [one] = await store.append(place.names, place.bounds, [ODD_BYTES], 1, True)
    [(_, fields)] = (await steps.take(5, place, first=1)).first
    assert fields == [b"d", ODD_BYTES]
    letter = output(place.names.dead(ODD_TEXT), value=ODD_BYTES)
    await steps.commit(5, "0-0", one, place, dead=1, letters=(letter,))
    offsets = await steps.redis.hgetall(place.names.offsets)
    assert offsets == {b"format": b"1", ODD_TEXT.encode(): one.encode()}
    [(_, fields)] = await steps.redis.xrange(letter.target.stream)
    assert fields == {b"d": ODD_BYTES}
    await store.quarantine(place, 5, "0", ODD_TEXT)
    assert (await steps.position(place)).quarantined == ODD_TEXT


@stepping
async def test_tokens_are_compared_as_whole_numbers_of_any_length(steps, server):
    await steps.take(9)
    await steps.take(10)
    await steps.take(BIG)
    await steps.take(2**63 - 1)


@stepping
async def test_commit_moves_the_offset_once_however_often_it_is_sent(steps, server):
    [one, two] = await steps.add(2)
    await steps.take(5)
    for _ in range(3):
        await steps.commit(5, "0-0", one, outputs=(output(),))
    assert await steps.redis.xlen("out") == 1
    await steps.commit(5, one, two)
    position = await steps.position()
    assert (position.offset, position.processed, position.fence) == (two, 2, 5)


@stepping
async def test_commit_from_an_offset_that_is_not_there_writes_nothing(steps, server):
    [one, two, three] = await steps.add(3)
    await steps.take(5)
    await steps.commit(5, "0-0", two)
    with pytest.raises(OffsetMoved):
        await steps.commit(5, one, three, outputs=(output(),))
    with pytest.raises(RedisRolledBack):
        await steps.commit(5, three, three)
    assert await steps.redis.exists("out") == 0


@stepping
async def test_ids_of_one_millisecond_are_ordered_by_their_number(steps, server):
    ids = [f"5-{number}" for number in (8, 9, 10, 11)]
    for entry_id in ids:
        await steps.redis.xadd(steps.place.names.stream, {"d": "x"}, id=entry_id)
    await steps.take(5)
    await steps.commit(5, "0-0", "5-9")
    await steps.commit(5, "5-9", "5-10")
    with pytest.raises(OffsetMoved):
        await steps.commit(5, "5-9", "5-11")
    assert (await steps.take(6)).offset == "5-10"
    assert await steps.store.trim(steps.place.names) == 2


@stepping
async def test_outputs_are_written_wholly_or_not_at_all(steps, server):
    [one] = await steps.add(1)
    await steps.take(5)
    await steps.redis.set("no stream", "text")
    with pytest.raises(StateError, match="no stream"):
        await steps.commit(5, "0-0", one, outputs=(output("out"), output("no stream")))
    await steps.redis.xadd("small", {"d": "x"})
    with pytest.raises(PartitionFull, match="small"):
        await steps.commit(5, "0-0", one, outputs=(output("out"), output("small", limit=1)))
    assert await steps.redis.exists("out") == 0
    assert (await steps.position()).offset == "0-0"
    await steps.commit(5, "0-0", one, outputs=(output("out"), output("small", limit=2)))
    assert [await steps.redis.xlen(key) for key in ("out", "small")] == [1, 2]


@stepping
async def test_full_partition_has_room_for_an_output_by_the_commits_own_events(steps, server):
    """A commit's output fits a full partition, in the place of its events."""
    place = place_of(limit=3)
    ids = await steps.add(3, place)
    await steps.take(5, place)
    own = output(place.names.stream, limit=3)
    await steps.commit(5, "0-0", ids[1], place, outputs=(own,))
    assert (await steps.ids())[:2] == ids[1:]


@stepping
async def test_commit_whose_outputs_are_refused_removes_nothing_from_anywhere(steps, server):
    place = place_of(limit=4)
    ids = await steps.add(4, place)
    await steps.take(5, place)
    own = output(place.names.stream, limit=4)
    with pytest.raises(PartitionFull):
        await steps.commit(5, "0-0", ids[2], place, outputs=(own,) * 3)
    assert await steps.ids() == ids
    await steps.redis.xadd("small", {"d": "x"})
    log = place_of("log", number=4, limit=2, loses=True)
    kept = await steps.add(2, log)
    for outputs in (
        (own, own, output("small", limit=1)),
        (output(log.names.stream, limit=2, loses=True), output("small", limit=1)),
    ):
        with pytest.raises(PartitionFull, match="small"):
            await steps.commit(5, "0-0", ids[2], place, outputs=outputs)
    assert (await steps.ids(), await steps.ids(log)) == (ids, kept)
    await steps.commit(5, "0-0", ids[2], place, outputs=(own, own))
    assert (await steps.ids())[:2] == ids[2:]


@stepping
async def test_trimming_stays_below_the_lowest_offset_of_all_processors(steps, server):
    bill, ship = place_of("bill"), place_of("ship")
    ids = await steps.add(5)
    await steps.store.register(ship)
    await steps.take(5, bill)
    await steps.commit(5, "0-0", ids[3], bill)
    assert await steps.store.trim(bill.names) == 0
    await steps.take(6, ship)
    await steps.commit(6, "0-0", ids[1], ship)
    assert await steps.store.trim(bill.names) == 1
    assert (
        await steps.ids() == ids[1:]
    )  # the entry at the lowest offset stays, and shows that nothing is missing


@stepping
async def test_sender_finds_room_by_trimming_or_is_told_how_many_fitted(steps, server):
    place = place_of(limit=4)
    ids = await steps.add(3, place)
    records = [b"{}"] * 3
    assert (await steps.store.append(place.names, place.bounds, records, 2, False))[0] == 1
    assert (await steps.store.append(place.names, place.bounds, records, 3, False))[0] == 0
    await steps.take(5, place)
    await steps.commit(5, "0-0", ids[2], place)
    assert (await steps.store.append(place.names, place.bounds, records, 4, False))[0] == 2


@stepping
async def test_where_the_oldest_give_way_it_is_counted_for_whom_they_are_lost(steps, server):
    place, other = place_of(limit=4, loses=True), place_of("ship", limit=4, loses=True)
    ids = await steps.add(4, place)
    await steps.take(5, place)
    await steps.commit(5, "0-0", ids[1], place)
    await steps.store.register(other)
    more = await steps.add(3, place)
    assert await steps.ids() == [ids[3], *more]
    lost = {
        key.decode(): int(value)
        for key, value in (await steps.redis.hgetall(place.names.lost)).items()
    }
    assert lost == {"format": 1, "bill": 1, "ship": 3}


@stepping
async def test_append_that_is_sent_again_adds_nothing_and_answers_the_same(steps, server):
    names, bounds = steps.place.names, steps.place.bounds
    first = await steps.store.append(names, bounds, [b"a", b"b"], 1, True)
    assert await steps.store.append(names, bounds, [b"a", b"b"], 1, True) == first
    assert len(await steps.ids()) == 2
    await steps.store.append(names, bounds, [b"c"], 2, True)
    with pytest.raises(RedisError, match="too late"):
        await steps.store.append(names, bounds, [b"a", b"b"], 1, True)
    assert len(await steps.ids()) == 3


@stepping
async def test_repeated_append_that_found_no_room_adds_nothing_later(steps, server):
    """A repeated append that found no room adds nothing once there is room."""
    place = place_of(limit=1)
    ids = await steps.add(1, place)
    found = await steps.store.append(place.names, place.bounds, [b"a"], 2, True)
    assert found == (0, [])
    await steps.take(5, place)
    await steps.commit(5, "0-0", ids[0], place)
    larger = place_of(limit=10).bounds
    assert await steps.store.append(place.names, larger, [b"a"], 2, True) == found
    await steps.store.append(place.names, larger, [b"b"], 3, True)
    with pytest.raises(RedisError, match="too late"):
        await steps.store.append(place.names, larger, [b"a"], 2, True)
    assert len(await steps.ids()) == 2


@stepping
async def test_two_senders_do_not_take_each_others_calls_for_their_own(steps, server):
    other = Steps(steps.redis)
    await steps.add(1)
    await other.add(1)
    assert len(await steps.ids()) == 2


@stepping
async def test_after_an_orderly_end_the_next_owner_need_not_be_careful(steps, server):
    await steps.add(3)
    await steps.take(5)
    await steps.store.close_place(steps.place, 5)
    assert (await steps.take(6)).careful == ""
    assert (await steps.position()).unclean == 0


@stepping
async def test_take_after_an_unclean_end_returns_the_careful_events(steps, server):
    """After an unclean end, a take returns the last event that may have begun."""
    ids = await steps.add(6)
    await steps.take(5, first=2)
    assert (await steps.take(6, first=1)).careful == ids[1]
    await steps.commit(6, "0-0", ids[0])
    await steps.store.extend(steps.place, 6, "0", ids[3])
    assert (await steps.take(7)).careful == ids[3]
    assert (await steps.take(7)).careful == ids[3]  # asked again: no second crash
    await steps.commit(7, ids[0], ids[1], ceiling=ids[4])
    assert (await steps.take(8)).careful == ids[4]
    assert (await steps.position()).unclean == 3


@stepping
async def test_commit_that_comes_late_does_not_lower_what_may_have_begun(steps, server):
    ids = await steps.add(5)
    await steps.take(6, first=2)
    await steps.store.extend(steps.place, 6, "0", ids[4])  # while a commit was on its way
    await steps.commit(6, "0-0", ids[0], ceiling=ids[2])
    assert (await steps.take(7)).careful == ids[4]


@stepping
async def test_nor_does_a_word_of_what_is_begun_that_comes_late(steps, server):
    ids = await steps.add(5)
    await steps.take(6, first=2)
    for entry_id in (ids[4], ids[2]):
        await steps.store.extend(steps.place, 6, "0", entry_id)
    assert (await steps.take(7)).careful == ids[4]


@stepping
async def test_owner_that_died_idle_leaves_nothing_to_be_careful_with(steps, server):
    [one] = await steps.add(1)
    await steps.take(5, first=9)
    await steps.commit(5, "0-0", one)
    await steps.add(3)
    assert (await steps.take(6)).careful == ""


@stepping
async def test_crash_counts_for_the_event_that_was_marked_and_no_other(steps, server):
    one, two, _ = await steps.add(3)
    await steps.take(5)
    taken = await steps.take(6)
    assert taken.ends == {}
    await steps.store.mark(steps.place, 6, "0", one)
    await steps.commit(6, "0-0", one)
    await steps.store.mark(steps.place, 6, "0", two)
    assert (await steps.take(7)).ends == {two: 1}
    assert (await steps.take(8)).ends == {two: 1}  # it died before it marked anything
    await steps.store.mark(steps.place, 8, "0", two)
    assert (await steps.take(9)).ends == {two: 2}
    await steps.commit(9, one, two)
    assert (await steps.take(10)).ends == {}
    assert (await steps.position()).offset == two


@pytest.fixture
def in_the_year(monkeypatch):
    """Set the clock that Redis is told."""

    def in_the_year(year):
        monkeypatch.setattr(
            store_module.time, "time_ns", lambda: (year - 1970) * 31_557_600 * 10**9
        )

    return in_the_year


def test_mark_that_comes_late_names_nothing(rink_redis, in_the_year):
    @stepping
    async def body(steps, server):
        one, two, three = await steps.add(3)
        for token, year in ((5, 2030), (7, 2001)):  # the next owner's clock is behind
            in_the_year(year)
            steps.store._told = 0  # it is another process
            before = steps.store._now_us()
            await steps.take(token)
            await mark_at(steps, token, one, before)
            assert await marked(steps) is None
            late = steps.store._now_us()
            await mark_at(steps, token, one, late)
            assert await marked(steps) == one.encode()
            await steps.store.mark(steps.place, token, "0", two)
            await mark_at(steps, token, one, late)
            assert await marked(steps) == two.encode()
            await steps.store.mark(steps.place, token, "0", "")
            await mark_at(steps, token, one, late)
            await steps.take(token)
            await mark_at(steps, token, one, late)
            assert await marked(steps) is None
            await steps.store.mark(steps.place, token, "0", three)

    body(rink_redis)


async def mark_at(steps, token, entry_id, told):
    args = {"token": str(token), "epoch": "0", "entry_id": entry_id, "now_us": told}
    await steps.store.run("mark", [steps.place.at], **args)


@stepping
async def test_take_that_comes_late_takes_nothing_back(steps, server):
    one, two = await steps.add(2)
    args = {
        "processor": steps.place.processor, "token": "5", "start": "earliest", "first": 0,
        "max_bytes": 0, "loses": False, "now_us": steps.store._now_us(),
    }  # fmt: skip
    await steps.take(5, first=1)
    await steps.store.mark(steps.place, 5, "0", one)
    await steps.store.extend(steps.place, 5, "0", two)
    await steps.store.run("take", steps.place.keys, **args)
    assert await marked(steps) == one.encode()
    taken = await steps.take(6)
    assert (taken.ends, taken.careful) == ({one: 1}, two)


async def marked(steps):
    return await steps.redis.hget(steps.place.at, "suspect")


@stepping
async def test_event_that_was_marked_and_committed_is_not_counted(steps, server):
    one, _ = await steps.add(2)
    await steps.take(5)
    await steps.store.mark(steps.place, 5, "0", one)
    await steps.commit(5, "0-0", one)
    assert (await steps.take(6)).ends == {}


@stepping
async def test_offset_above_the_streams_last_id_is_refused(steps, server):
    [one] = await steps.add(1)
    await steps.take(5)
    await steps.commit(5, "0-0", one)
    await steps.redis.delete(steps.place.names.stream)
    with pytest.raises(RedisRolledBack, match="rolled back"):
        await steps.take(6)


@pytest.mark.parametrize("loss", ["deleted", "emptied"])
def test_committed_event_that_is_missing_is_noticed(rink_redis, loss):
    """A missing committed event is noticed.

    A stream that was deleted and used again has a higher last id, which alone shows nothing.
    """

    @stepping
    async def check(steps, server):
        [one] = await steps.add(1)
        await steps.take(5)
        await steps.commit(5, "0-0", one)
        if loss == "deleted":
            await steps.redis.delete(steps.place.names.stream)
        else:
            await steps.redis.xtrim(steps.place.names.stream, maxlen=0)
        await steps.add(1)
        with pytest.raises(RedisRolledBack):
            await steps.take(6)

    check(rink_redis)


@stepping
async def test_owner_that_comes_back_stays_what_it_was_open_or_ended_in_order(steps, server):
    await steps.add(1)
    await steps.take(5)
    known = OwnerMemory("0", "0-0", "0-0")
    await steps.take(5, known=known)
    assert (await steps.position()).is_open
    await steps.store.close_place(steps.place, 5)
    await steps.take(5, known=known)
    assert not (await steps.position()).is_open


@stepping
async def test_commit_of_an_event_that_is_gone_is_refused(steps, server):
    one, _ = await steps.add(2)
    await steps.take(5)
    await steps.redis.delete(steps.place.names.stream)
    with pytest.raises(RedisRolledBack):
        await steps.commit(5, "0-0", one)


@stepping
async def test_quarantined_partition_is_told_until_it_is_unquarantined(steps, server):
    place = steps.place
    await steps.add(2)
    await steps.take(5)
    await steps.store.quarantine(place, 5, "0", "for a test")
    taken = await steps.take(6, first=2)
    assert (taken.quarantined, taken.first) == ("for a test", [])
    answer = await steps.store.run("unquarantine", place.keys, **place.args)
    assert answer[0] == b"ok"
    assert (await steps.take(6)).quarantined == ""
    with pytest.raises(OffsetMoved):
        await steps.store.quarantine(place, 6, "0", "by somebody who has not heard of that")


@stepping
async def test_what_was_sent_since_redis_lost_everything_comes_after_all(steps, server):
    place = steps.place
    await steps.take(5)
    await steps.store.quarantine(place, 5, "0", "rolled back, for a test")
    await steps.redis.hdel(place.names.offsets, place.processor)
    await steps.add(3)
    said, _, offset = await steps.store.run("unquarantine", place.keys, **place.args)
    assert (said, offset) == (b"ok", b"0-0")
    assert len((await steps.take(6, first=5)).first) == 3


@stepping
async def test_reset_makes_the_owner_take_again(steps, server):
    place, ids = steps.place, await steps.add(3)
    await steps.take(5)
    await steps.commit(5, "0-0", ids[1])
    await steps.store.run("reset", place.keys, processor=place.processor, to="earliest")
    with pytest.raises(OffsetMoved):
        await steps.commit(5, ids[1], ids[2])
    taken = await steps.take(5)
    assert (taken.offset, taken.epoch) == ("0-0", "1")
    await steps.commit(5, "0-0", ids[0], epoch="1")


@stepping
async def test_dead_letter_is_requeued_for_its_processor_alone_and_once(steps, server):
    place, [one] = steps.place, await steps.add(1)
    await steps.take(5)
    dead = place.names.dead("bill")
    letter = output(dead)
    await steps.commit(5, "0-0", one, dead=1, letters=(letter,))
    [(letter_id, _)] = await steps.redis.xrange(dead)
    keys = [dead, *place.names.keys]
    args = {"letter": letter_id.decode(), "bounds": place.bounds.args}
    first = await steps.store.run("requeue", keys, processor="bill", **args)
    again = await steps.store.run("requeue", keys, processor="bill", **args)
    assert (first[0], again[0]) == (b"ok", b"gone")
    [_, (_, fields)] = await steps.redis.xrange(place.names.stream)
    assert fields == {b"d": b"x", b"only": b"bill"}
    assert (await steps.store.run("requeue", keys, processor="nobody", **args))[0] == b"unknown"


@stepping
async def test_concurrent_steps_share_a_pipeline_and_fail_one_by_one(steps, server):
    """Concurrent steps share one pipeline, and each fails for itself."""
    ids = await steps.add(1)
    places = [place_of(number=number) for number in range(50)]
    await steps.redis.set(places[9].names.stream, "no stream")
    taken = await asyncio.gather(
        *(steps.take(5, place) for place in places), return_exceptions=True
    )
    assert isinstance(taken.pop(9), StateError)
    assert {one.offset for one in taken} == {"0-0"}
    await steps.commit(5, "0-0", ids[0])
