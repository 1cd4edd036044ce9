"""Test the promises of every guard.

The fast tests run this on SQLite and Parquet, the integration tests on Redis and PostgreSQL.
"""

import contextlib
import pickle
from collections import Counter

import pytest
from guards_worlds import batch, fence, what_of

from rink.errors import ConfigError, StaleToken, StateError, UsageError
from rink.guards import Fence


def test_each_part_of_a_batch_is_written_once_however_often_it_is_tried(world):
    for _ in range(3):
        world.write_batch(fence(5), batch(0))
    assert world.contents() == world.whole(batch(0))
    world.write_batch(fence(5), batch(1))
    world.write_batch(fence(5), batch(0))
    assert world.contents() == world.whole(batch(0), batch(1))


def test_part_that_was_written_has_no_step(world):
    world.write_batch(fence(5), batch(7))
    for number in (0, 7):
        with world.guard.part(fence(5), batch(number), 1) as step:
            assert step is None


def test_part_knows_the_newest_batch_in_which_it_was_written(world):
    world.guard.begin(fence(5), batch(0))
    before = world.guard.part(fence(5), batch(0), 1)
    with contextlib.suppress(ZeroDivisionError), before:
        raise ZeroDivisionError
    assert before.written is None
    for done, asked in ((0, 0), (7, 3), (7, 7), (7, 8)):
        world.write_batch(fence(5), batch(done))
        part = world.guard.part(fence(5), batch(asked), 1)
        assert part.written is None
        with contextlib.suppress(ZeroDivisionError), part:
            raise ZeroDivisionError
        assert part.written == done


def test_stale_token_is_refused_by_every_call_and_changes_nothing(world):
    guard, stale = world.guard, fence(5)
    world.write_batch(stale, batch(0))
    guard.begin(stale, batch(1))
    results = [world.write_part(stale, batch(1), number) for number in range(2)]
    before = world.contents()
    guard.raise_fence(fence(6))

    def enter():
        with guard.part(stale, batch(2), 0):
            pass

    for refused in (
        lambda: guard.raise_fence(stale),
        lambda: guard.begin(stale, batch(2)),
        enter,
        lambda: guard.finish(stale, batch(1), results),
        lambda: world.write_batch(stale, batch(0)),
    ):
        with pytest.raises(StaleToken, match="flights") as caught:
            refused()
        assert (caught.value.role, caught.value.token, caught.value.newer) == ("flights", 5, 6)
    assert world.contents() == before
    world.write_batch(fence(6), batch(1))
    assert world.contents() == world.whole(batch(0), batch(1))


def test_tokens_are_told_apart_beyond_what_a_float_can(world):
    world.guard.raise_fence(fence(2**62 + 1))
    for stale in (2**62, 2**53, 9):
        with pytest.raises(StaleToken):
            world.write_batch(fence(stale), batch(0))
    world.write_batch(fence(2**62 + 1), batch(0))
    world.write_batch(fence(2**63 - 1), batch(1))
    with pytest.raises(StaleToken):
        world.write_batch(fence(2**63 - 2), batch(2))
    assert world.contents() == world.whole(batch(0), batch(1))


def test_fence_may_be_raised_to_the_same_token_again(world):
    for token in (5, 5, 6, 6):
        world.guard.raise_fence(fence(token))


def test_exception_in_a_part_leaves_nothing_of_it(world):
    world.guard.begin(fence(5), batch(0))
    part = world.guard.part(fence(5), batch(0), 0)
    with pytest.raises(ZeroDivisionError), part as step:  # noqa: PT012
        world.write(step, batch(0), 0)
        raise ZeroDivisionError
    assert part.result is None
    assert world.contents() == Counter()
    world.write_batch(fence(5), batch(0))
    assert world.contents() == world.whole(batch(0))


def test_fence_raised_while_a_part_is_written_refuses_it_at_its_end(world):
    if not world.raises_inside:
        pytest.skip("raising waits for this part")
    world.guard.begin(fence(5), batch(0))
    with pytest.raises(StaleToken), world.guard.part(fence(5), batch(0), 0) as step:  # noqa: PT012
        world.write(step, batch(0), 0)
        pickle.loads(pickle.dumps(world.guard)).raise_fence(fence(6))
        world.write(step, batch(0), 0)
    assert world.contents() == Counter()
    world.write_batch(fence(6), batch(0))
    assert world.contents() == world.whole(batch(0))


def test_next_driver_goes_on_in_the_middle_of_a_batch(world):
    """Its replay finds the first driver's parts, and writes the rest itself."""
    world.guard.begin(fence(5), batch(0, parts=3))
    world.write_part(fence(5), batch(0, parts=3), 1)
    world.guard.raise_fence(fence(6))
    world.write_batch(fence(6), batch(0, parts=3))
    assert world.contents() == world.whole(batch(0, parts=3))


def test_batch_0_of_a_new_checkpoint_is_no_replay(world):
    for query in ("q1", "q2"):
        world.write_batch(fence(5), batch(0, query))
    world.write_batch(fence(5), batch(0, "q1"))
    assert world.contents() == world.whole(batch(0, "q1"), batch(0, "q2"))


def test_query_that_is_cut_into_other_parts_is_refused(world):
    world.write_batch(fence(5), batch(0, parts=2))
    for parts in (1, 3):
        with pytest.raises(StateError, match="has 2 parts"):
            world.guard.begin(fence(5), batch(1, parts=parts))
    world.write_batch(fence(5), batch(0, "another", parts=3))
    assert world.contents() == world.whole(batch(0), batch(0, "another", parts=3))


def test_names_do_not_stop_each_others_tokens(world):
    world.guard.raise_fence(fence(9, "other"))
    world.write_batch(fence(5), batch(0))
    assert world.contents() == world.whole(batch(0))


@pytest.mark.parametrize(
    "name", ["BTC/ETH", "../x", "..", "ü", "a b", "{x}", "x}", "\0", "%", "'; --", "q*"]
)
def test_any_name_can_be_used_for_roles_and_queries(world, name):
    one = batch(0, name)
    world.write_batch(fence(5, name), one)
    world.guard.raise_fence(fence(6, name))
    with pytest.raises(StaleToken):
        world.write_batch(fence(5, name), batch(1, name))
    world.write_batch(fence(6, name), one)
    found = world.contents()
    assert list(found.values()) == [1, 1]


def test_batch_that_was_not_begun_is_refused(world):
    """A driver that raises the fence cannot know a token never stored."""
    with contextlib.suppress(StateError):  # Parquet raises at the end
        results = [world.write_part(fence(5), batch(0), number) for number in range(2)]
        with pytest.raises(StateError, match="begin"):
            world.guard.finish(fence(5), batch(0), results)
        raise StateError
    assert world.contents() == Counter()


def test_copies_of_a_guard_are_the_same_guard(world):
    copy = pickle.loads(pickle.dumps(world.guard))
    world.write_batch(fence(5), batch(0), guard=copy)
    world.write_batch(fence(5), batch(0))
    assert world.contents() == world.whole(batch(0))
    copy.close()
    world.write_batch(fence(5), batch(1), guard=copy)
    assert world.contents() == world.whole(batch(0), batch(1))


def test_part_is_one_of_those_that_the_batch_has(world):
    world.guard.begin(fence(5), batch(0))
    for number in (-1, 2, 1.0, None, True):
        with pytest.raises(ConfigError, match="part"):
            world.guard.part(fence(5), batch(0), number)


def test_part_is_entered_once(world):
    world.guard.begin(fence(5), batch(0))
    part = world.guard.part(fence(5), batch(0), 0)
    with part as step:
        world.write(step, batch(0), 0)
    with pytest.raises(UsageError), part:
        pass


def test_step_ends_with_its_part(world):
    world.guard.begin(fence(5), batch(0))
    with world.guard.part(fence(5), batch(0), 0) as step:
        world.write(step, batch(0), 0)
    with pytest.raises(Exception, match=r"over|closed"):
        world.write(step, batch(0), 0)


def test_what_is_no_fence_is_refused(world):
    for call in (
        lambda: world.guard.raise_fence(5),
        lambda: world.guard.begin(fence(5), "batch"),
        lambda: world.guard.part("flights", batch(0), 0),
        lambda: world.guard.finish(None, batch(0), []),
    ):
        with pytest.raises(ConfigError):
            call()
    assert Fence.of(fence(5)) == fence(5)


def test_two_attempts_of_one_part_are_written_once(world):
    if not world.raises_inside:
        pytest.skip("the second waits for the first")
    copy = pickle.loads(pickle.dumps(world.guard))
    world.guard.begin(fence(5), batch(0))
    one, two = (guard.part(fence(5), batch(0), 0) for guard in (world.guard, copy))
    with one as first, two as second:
        world.write(first, batch(0), 0)
        world.write(second, batch(0), 0)
    assert sum(world.contents().values()) == (0 if world.publishes_at_finish else 1)
    other = world.write_part(fence(5), batch(0), 1)
    world.guard.finish(fence(5), batch(0), [two.result, other])
    world.guard.finish(fence(5), batch(0), [one.result, other])
    assert world.contents() == Counter({what_of(batch(0), 0): 1, what_of(batch(0), 1): 1})
