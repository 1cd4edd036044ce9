"""Choose sizes of answers from the sizes of earlier ones."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rink.errors import ConfigError
from rink.redis.script_pipeline import batch_length
from rink.streams import App
from rink.streams.store.byte_limits import ByteLimits, SharedMemory, Sizes

MB = 2**20


def read(sizes, plan, entry):
    """Answer a plan with entries of one size, and return their bytes."""
    asked, count = plan
    for key in asked:
        sizes.note(key, count, count * (entry))
    return len(asked) * count * entry


def test_sizes_unknown_first_answer_is_small():
    asked, count = Sizes(MB).plan("abcd", 250)
    assert (asked, count) == (list("abcd"), 4)


@pytest.mark.parametrize("entry", [100, 10_000, MB, 10 * MB])
def test_sizes_learnt_answer_keeps_to_the_bound(entry):
    sizes = Sizes(MB)
    read(sizes, sizes.plan("abcd", 250), entry)
    for _ in range(40):
        got = read(sizes, sizes.plan("abcd", 250), entry)
        assert got <= max(MB, entry)
    assert got >= min(MB // 2, 1000 * entry, max(entry, 1))


def test_sizes_small_entries_reach_the_full_count_soon():
    sizes = Sizes(MB)
    rounds = 0
    while sizes.plan(range(16), 250)[1] < 250:
        read(sizes, sizes.plan(range(16), 250), 100)
        rounds += 1
    assert rounds <= 12


def test_sizes_large_entries_are_known_at_once():
    sizes = Sizes(MB)
    for _ in range(20):
        sizes.note("a", 100, 10_000)
    sizes.note("a", 1, MB)
    assert sizes.plan("a", 250) == (["a"], 1)
    sizes.note("a", 100, 10_000)
    assert sizes.plan("a", 250) == (["a"], 1), "a few small ones do not hide them"


def test_sizes_too_large_for_all_each_has_its_turn():
    sizes = Sizes(MB)
    for key in range(5):
        sizes.note(key, 1, 1 * (MB // 2))
    asked = [key for _ in range(5) for key in sizes.plan(range(5), 250)[0]]
    assert sorted(asked) == sorted(list(range(5)) * 2)


def test_sizes_small_entries_do_not_get_as_few_as_large_ones():
    sizes = Sizes(MB)
    sizes.note("large", 1, MB // 2)
    for key in "abc":
        for _ in range(30):
            sizes.note(key, 10, 10 * 100)
    wanted = ["large", *"abc"]
    assert sizes.count(wanted, 250) == 1, "in one answer"
    turns = [sizes.plan(wanted, 250) for _ in range(4)]
    assert turns == [(["large"], 2), (list("abc"), 250)] * 2


def test_sizes_one_small_entry_hides_large_ones_less_than_many_do():
    sizes = Sizes(MB)
    sizes.note("a", 1, MB)
    sizes.note("a", 1, 100)
    assert sizes.plan("a", 250) == (["a"], 1)
    sizes.note("a", 100, 100 * 100)
    sizes.note("a", 100, 100 * 100)
    assert sizes.plan("a", 250) == (["a"], 4)


def test_sizes_timeouts_lead_to_one_entry_of_one_partition():
    sizes = Sizes(MB)
    for key in "abcd":
        sizes.note(key, 250, 250 * (100))
    for _ in range(20):
        sizes.note("a", 250, 250 * (100))
    before, tries = 10**9, 0
    while True:
        asked, count = sizes.plan("abcd", 250)
        assert len(asked) * count <= before
        before = len(asked) * count
        tries += 1
        if not sizes.halve(asked, count):
            break
    assert before == 1
    assert tries < 15


def test_sizes_after_timeouts_of_nothing_large_it_recovers():
    sizes = Sizes(MB)
    for _ in range(10):
        for key in range(8):
            sizes.note(key, 10, 10 * (100))
    for _ in range(4):
        sizes.halve(list(range(8)), 250)
    for _ in range(20):
        for key in sizes.plan(range(8), 250)[0]:
            sizes.note(key, 0, 0)
    assert sizes.plan(range(8), 250) == (list(range(8)), 250)


@given(
    st.lists(st.tuples(st.integers(0, 7), st.lists(st.integers(0, 4 * MB), max_size=5))),
    st.integers(1, 8),
    st.integers(1, 300),
)
def test_sizes_plan_always_asks_for_something(notes, owners, most):
    sizes = Sizes(MB)
    for key, found in notes:
        sizes.note(key, len(found), sum(found))
    for _ in range(3):
        asked, count = sizes.plan(range(owners), most)
        assert asked
        assert 1 <= count <= most
        assert len(set(asked)) == len(asked)


def test_held_each_partition_has_an_even_share():
    held = SharedMemory(32 * MB)
    assert held.share == 32 * MB
    told = []
    for name in "abcd":
        held.enter(name, functools.partial(told.append, name))
    assert held.share == 8 * MB
    assert told == list("aababc"), "those before hear that their shares shrink"
    held.leave("a")
    assert held.share == 32 * MB // 3


@pytest.mark.parametrize(
    ("sizes", "count"),
    [([], 0), ([5, 5, 5], 2), ([99], 1), ([99, 1], 1), ([1] * 20, 4), ([10, 0, 0, 1], 3)],
)
def test_slice_of_is_bounded_and_never_empty(sizes, count):
    assert batch_length(sizes, 10, 4) == count


@pytest.mark.parametrize(
    "given",
    [{"max_reply_bytes": 0}, {"max_in_flight_bytes": 1.5}, {"max_in_flight_bytes": 2**19}],
)
def test_limits_that_cannot_be_used_are_refused(given):
    with pytest.raises(ConfigError, match=next(iter(given))):
        App("shop", **given)
    assert ByteLimits().reply == MB
