"""Test that every hash in Redis has its format."""

from steps_support import hashes, output, place_of, stepping

from rink.streams.store.keys import Names

STREAM = Names.of("shop", "orders")


@stepping
async def test_every_hash_has_its_format(steps, server):
    await steps.store.settle_count(STREAM, "orders", 16)
    [one, _, three] = await steps.add(3)
    await steps.take(5)
    await steps.store.extend(steps.place, 5, "0", three)
    await steps.commit(5, "0-0", one, outputs=(output(),))
    lossy = place_of(processor="slow", limit=2, loses=True)
    await steps.store.register(lossy)
    await steps.add(2, lossy)
    found = await hashes(steps.redis)
    kinds = {key.decode().partition("}")[2].split(":")[1:2][0] for key in found if b"}:" in key}
    assert kinds == {"offsets", "at", "lost", "kept"}
    assert {fields[b"format"] for fields in found.values()} == {b"1"}


@stepping
async def test_steps_of_an_owner_leave_no_hash_without_format(steps, server):
    """Redis may lose everything between any two steps."""
    for step in (
        lambda: steps.store.extend(steps.place, 5, "0", "7-0"),
        lambda: steps.store.mark(steps.place, 5, "0", "7-0"),
        lambda: steps.store.quarantine(steps.place, 5, "0", "for a test"),
    ):
        await steps.redis.flushall()
        await step()
        assert {fields[b"format"] for fields in (await hashes(steps.redis)).values()} == {b"1"}
