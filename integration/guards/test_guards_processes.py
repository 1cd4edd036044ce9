"""Test with real processes: killed in a part, frozen in one, two at once."""

import signal
from collections import Counter

import pytest
from guards_process import Child
from guards_worlds import batch, fence, what_of

from rink.errors import StaleToken

KINDS = {"redis": "redis", "postgres": "sql", "sqlite": "sql", "parquet": "parquet"}


@pytest.fixture(
    params=[
        "redis",
        "postgres",
        *(pytest.param(one, marks=pytest.mark.deep) for one in ("sqlite", "parquet")),
    ]
)
def world(request, clean):
    made = clean(request.param)
    made.kind = KINDS[request.param]
    return made


def hanging(world, token=5, one=None):
    child = Child("hang", world.guard, world.kind, fence(token), one or batch(0))
    assert child.line() == "in"
    return child


def test_process_that_is_killed_in_a_part_leaves_nothing_of_it(world):
    world.guard.begin(fence(5), batch(0))
    for _ in range(2):
        hanging(world).kill()
        assert world.contents() == Counter()
    world.guard.raise_fence(fence(6))
    world.write_batch(fence(6), batch(0))
    assert world.contents() == world.whole(batch(0))


def test_process_frozen_while_the_fence_is_raised_writes_nothing(world):
    if not world.raises_inside:
        pytest.skip("SQLite has one writer: it keeps the database")
    world.guard.begin(fence(5), batch(0))
    child = hanging(world)
    child.process.send_signal(signal.SIGSTOP)
    world.guard.raise_fence(fence(6))
    world.write_batch(fence(6), batch(1))
    child.process.send_signal(signal.SIGCONT)
    child.tell()
    assert child.end() == ["StaleToken"]
    assert world.contents() == world.whole(batch(1))


def test_two_processes_that_write_the_same_batches_write_each_once(world):
    batches = [batch(number) for number in range(12)]
    world.guard.raise_fence(fence(5))
    children = [Child("race", world.guard, world.kind, fence(5), batches) for _ in range(3)]
    for child in children:
        assert child.line() == "ready"
    for child in children:
        child.tell()
    for child in children:
        assert child.end() == ["done"]
    assert world.contents() == world.whole(*batches)


def test_two_processes_that_write_other_batches_write_all(world):
    queries = ["q1", "q2", "q3"]
    children = []
    for query in queries:
        batches = [batch(number, query) for number in range(12)]
        children.append(Child("race", world.guard, world.kind, fence(5, query), batches))
        assert children[-1].line() == "ready"
    for child in children:
        child.tell()
    for child in children:
        assert child.end() == ["done"]
    assert world.contents() == world.whole(*(batch(n, q) for q in queries for n in range(12)))


def test_of_processes_that_raise_one_fence_the_highest_token_stays(world):
    children = []
    for first in (1, 2, 3):
        fences = [fence(2**62 + token) for token in range(first, 40, 3)]
        children.append(Child("raise", world.guard, fences))
        assert children[-1].line() == "ready"
    for child in children:
        child.tell()
    assert all(set(child.end()) <= {"raised", "StaleToken"} for child in children)
    world.guard.raise_fence(fence(2**62 + 39))
    with pytest.raises(StaleToken) as caught:
        world.guard.raise_fence(fence(2**62 + 38))
    assert caught.value.newer == 2**62 + 39


def test_killed_drivers_batch_is_finished_by_the_next_one(world):
    """Written parts stay written; the interrupted part is written once."""
    world.guard.begin(fence(5), batch(0, parts=3))
    for number in (1, 2):
        world.write_part(fence(5), batch(0, parts=3), number)
    hanging(world, one=batch(0, parts=3)).kill()
    world.guard.raise_fence(fence(6))
    world.write_batch(fence(6), batch(0, parts=3))
    assert world.contents() == Counter({what_of(batch(0), number): 1 for number in range(3)})
