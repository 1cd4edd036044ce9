"""Keys: any name is legal, and no name ever lies in another's range."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rink.core import keys
from rink.core.keys import Keys, OffsetKeys, SlotKeys
from rink.errors import ConfigError

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)
ODD = [
    "BTC/ETH",
    "BTC",
    ".",
    "..",
    "...",
    "a b",
    "%2F",
    "%",
    "日本語",
    "🛷",
    "\x00",
    "\n",
    "0",
    "~",
]


@pytest.mark.parametrize("name", [*ODD, "x" * 8192, "/" * 2730, "é" * 1365])
def test_name_comes_back_from_its_segment(name):
    segment = keys.encode_name(keys.check_name("role", name))
    assert keys.decode_name(segment) == name
    assert "/" not in segment
    assert segment.strip(".")


@given(NAMES)
def test_every_name_is_one_segment_and_comes_back(name):
    assert keys.decode_name(keys.encode_name(name)) == name
    assert "/" not in keys.encode_name(name)


@given(NAMES, NAMES, NAMES)
def test_no_key_of_one_group_lies_in_the_range_of_another(one, other, member):
    range_of, key = Keys.of("rink/", one), Keys.of("rink/", other).member(member)
    assert (range_of.root <= key < range_of.end) == (one == other)


def test_groups_of_which_one_name_begins_with_the_other_are_apart():
    for one, other in [("a", "a/b"), ("a", "ab"), ("..", "."), ("a", "a/members")]:
        outer, inner = Keys.of("rink/", one), Keys.of("rink/", other)
        assert not outer.root <= inner.member("x") < outer.end
        assert not inner.root <= outer.member("x") < inner.end


def test_versions_sort_as_their_numbers_do():
    of = Keys.of("rink/", "g").version
    assert of(9) < of(10) < of(99) < of(10**15)


@pytest.mark.parametrize("segment", ["", "a/b", "%2f", "a b", ".", "%ff", "%", "a%", "é"])
def test_segment_that_no_name_is_encoded_as_gives_none(segment):
    assert keys.decode_name(segment) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "empty"),
        (b"a", "must be a str, not bytes"),
        (None, "must be a str"),
        ("\ud800", "not valid unicode"),
        ("x" * 8193, "the limit is 8192"),
        ("/" * 2731, "takes 8193 bytes"),
        ("é" * 2000, "takes 12000 bytes"),
    ],
)
def test_name_that_cannot_be_used_is_refused_with_a_reason(name, says):
    with pytest.raises(ConfigError, match=says):
        keys.check_name("role", name)


def test_request_lies_under_its_own_key():
    of = Keys.of("rink/", "g")
    assert of.request("a/b") == b"rink/g/requests/a%2Fb"
    assert of.member("..") == b"rink/g/members/%2E%2E"


@given(NAMES, NAMES, NAMES, NAMES, st.integers(0, 99_999))
def test_no_offset_lies_in_the_range_of_a_group_or_of_another_topic(one, two, topic, other, number):
    key = OffsetKeys.of("rink/", one, topic).partition(number)
    group, theirs = Keys.of("rink/", two), OffsetKeys.of("rink/", two, other)
    assert not group.root <= key < group.end
    assert (theirs.root <= key < theirs.end) == ((one, topic) == (two, other))


@given(NAMES, NAMES, NAMES, NAMES, NAMES)
def test_no_slot_lies_in_the_range_of_a_group_or_of_another_role(one, two, role, other, slot):
    key = SlotKeys.of("rink/", one, role).slot(slot)
    group, theirs = Keys.of("rink/", two), SlotKeys.of("rink/", two, other)
    assert not group.root <= key < group.end
    assert (theirs.root <= key < theirs.end) == ((one, role) == (two, other))
    assert key.startswith(SlotKeys.of("rink/", one, role).root)


def test_slot_has_a_key_beside_its_group():
    key = SlotKeys.of("rink/", "g", "a/b").slot("03:00 Z")
    assert key == b"rink/g:slots/a%2Fb/03%3A00%20Z"
    assert keys.is_beside_group("g:slots")
    assert not keys.is_beside_group("g:other")


@given(st.lists(st.tuples(NAMES, NAMES, st.integers(0, 99)), unique=True, max_size=20))
def test_every_offset_has_a_key_of_its_own(places):
    found = {OffsetKeys.of("rink/", group, topic).partition(n) for group, topic, n in places}
    assert len(found) == len(places)


@pytest.mark.parametrize("name", ["g:offsets", ":offsets", "g:offsets/orders", "g", *ODD])
def test_group_of_an_odd_name_is_apart_from_every_offset(name):
    group, key = Keys.of("rink/", name), OffsetKeys.of("rink/", "g", "orders").partition(0)
    assert not group.root <= key < group.end
    segment = group.root.decode().split("/")[1]
    assert not keys.is_beside_group(segment)
    assert keys.is_beside_group(segment + keys.OFFSETS)
    assert key == b"rink/g:offsets/orders/0"


def test_what_only_looks_like_offsets_belongs_to_nobody():
    assert not keys.is_beside_group(":offsets")
    assert not keys.is_beside_group("a b:offsets")
