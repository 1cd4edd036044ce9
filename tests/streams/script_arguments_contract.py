"""Hold the arguments of scripts to what Redis must get of them: all digits, and all bytes.

The tests run on a Redis in memory and on a real one, as those of `steps_contract`.
"""

import pytest
from steps_support import output, place_of, stepping

from rink.errors import StaleToken

BIG = 2**53 + 1
"""A token that a Lua number cannot hold: it would become 2**53."""
ODD_TEXT = 'a "quoted" \\back\\slash, {"json": [1]}, %d, ü 漢 🦊, \t\n'
ODD_BYTES = bytes(range(256))


@stepping
async def test_steps_token_above_2_53_keeps_all_digits(steps, server):
    store, place, [one, two] = steps.store, steps.place, await steps.add(2)
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
        assert caught.value.newer in (BIG, 0)  # a close does not ask for it
    await steps.commit(BIG, "0-0", one, outputs=(output(),))
    await store.extend(place, BIG, "0", two)
    await store.mark(place, BIG, "0", two)
    await store.close_place(place, BIG)
    await store.quarantine(place, BIG, "0", "for a test")
    assert (await steps.position()).fence == BIG
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
    await store.quarantine(place, 5, "0", ODD_TEXT + "\0")
    assert (await steps.position(place)).quarantined == ODD_TEXT + "\0"
