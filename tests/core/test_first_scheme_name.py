"""Test the scheme `first`: the roles of rank 0, and how names are read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rink.core import first_scheme_name
from rink.core.schemes import (
    UnknownScheme,
    can_follow,
    find,
    follows,
    partitions_of,
    rank_of,
    register,
)
from rink.errors import ConfigError

MIXED = "first:leader,poller|balanced:8"


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_first_gives_every_role_rank_zero(size):
    assert {rank_of(role, size, "first") for role in ("leader", "BTC/ETH", "", "x/7")} == {0}
    assert rank_of("leader", 0, "first") is None


def test_first_with_names_gives_others_the_scheme_behind_the_bar():
    for size in (0, 1, 3, 8):
        for role in ("orders/3", "other", "leaders", "lead"):
            assert rank_of(role, size, MIXED) == rank_of(role, size, "balanced:8")
            assert rank_of(role, size, "first:leader") == rank_of(role, size)
        for role in ("leader", "poller"):
            assert rank_of(role, size, MIXED) == (0 if size else None)


@given(
    st.sets(st.text(min_size=1, max_size=20), min_size=1, max_size=10),
    st.sampled_from(["jump", "balanced:3"]),
)
def test_first_has_one_spelling_that_finds_it(roles, rest):
    name = first_scheme_name.text_of(roles, rest)
    assert first_scheme_name.parse(name) == (roles, rest)
    assert find(name).name == name
    assert all(rank_of(role, 9, name) == 0 for role in roles)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("first:poller,leader", "write 'first:leader,poller'"),
        ("first:leader,leader", "write 'first:leader'"),
        ("first:BTC/ETH", "write 'first:BTC%2FETH'"),
        ("first:a%62", "write 'first:a%2562'"),
        ("first:a, b", "write 'first:%20b,a'"),
        ("first:leader|jump", "write 'first:leader'"),
        ("first:leader|", "write 'first:leader'"),
        ("first:,", "one or more roles"),
        ("first:", "one or more roles"),
        ("first|balanced:8", "one or more roles"),
        ("first:leader|first", "not 'first'"),
        ("first:leader|first:x", "not 'first'"),
        ("first:leader|Jump", "scheme 'Jump' is not known here"),
        ("first:leader|balanced:08", "'balanced:08' is not known here"),
        ("first:leader\ud800", "not valid unicode"),
        ("first:".ljust(4_097, "x"), "more than 4096 bytes"),
    ],
)
def test_first_refuses_another_spelling_and_says_the_right_one(name, says):
    assert not can_follow(name)
    with pytest.raises(UnknownScheme) as caught:
        find(name)
    assert says in str(caught.value)


def test_first_may_be_four_kilobytes_long():
    assert can_follow("first:" + "x" * (first_scheme_name.NAME_LIMIT_BYTES - len("first:")))


def test_first_is_followed_by_who_follows_the_scheme_behind_it():
    mine = register(lambda _, size: size - 1, "last", 1)
    name = f"first:leader|{mine}"
    assert rank_of("leader", 5, name) == 0
    assert rank_of("other", 5, name) == 4
    assert follows(("jump",), "first")
    assert follows(("jump",), MIXED)
    assert not follows(("jump",), name), "that this process knows it says nothing of the member"
    assert follows((mine,), name)
    assert follows((name,), mine)
    assert follows((name,), "first:poller|" + mine)
    assert not follows(("jump",), "first:leader|unknown@1#0")
    assert not follows(("jump",), "first:b,a")
    assert follows(("first:b,a",), "first:b,a"), "a later Rink may know what this one does not"


def test_first_has_no_rank_for_a_role_without_utf8_form():
    with pytest.raises(ConfigError, match="no UTF-8 form"):
        rank_of("leader\ud800", 3, "first")


@pytest.mark.parametrize(
    ("name", "count"),
    [("balanced:8", 8), (MIXED, 8), ("jump", 0), ("first", 0), ("first:a", 0), ("balanced:08", 0)],
)
def test_partitions_of_a_scheme_are_those_it_spreads(name, count):
    assert partitions_of(name) == count
