"""Test the next version, and what follows from counts; without Spark."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rink.core.schemes import UnknownScheme, rank_of
from rink.core.values import Version
from rink.core.view import owner_of
from rink.errors import ConfigError
from rink.spark.roles import after
from rink.spark.roles.plans import Flow, summed, tally
from rink.spark.roles.version_ranks import RoleMap


def version(*ranks, scheme="jump", **pins):
    return Version(number=4, ranks=ranks, scheme=scheme, pins=pins)


# ── the version after ────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("leave", "join", "waiting", "ranks"),
    [
        ((), (), (), "abcd"),
        (("b",), (), (), "adc"),
        (("d",), (), (), "abc"),
        (("a", "b"), (), (), "cd"),
        ((), ("x", "y"), (), "abcdxy"),
        (("b",), ("x",), (), "axcd"),
        (("b",), ("x", "y"), (), "axcdy"),
        (("b", "c"), ("x",), (), "axd"),
        (("b",), (), ("w",), "awcd"),
        (("b",), ("x",), ("w",), "awcdx"),
        (("w",), ("x",), ("w",), "abcdx"),
        (("a", "b", "c", "d"), ("x",), (), "x"),
    ],
)
def test_who_has_which_rank_then(leave, join, waiting, ranks):
    found = after(version(*"abcd", role="a"), leave, join, waiting)
    assert found.ranks == tuple(ranks)
    assert (found.number, found.scheme, dict(found.pins)) == (5, "jump", {"role": "a"})
    assert bool(found.because) is (ranks != "abcd")


def test_causes_are_the_coordinators():
    found = after(version(*"abc"), ("a", "b"), ("x",))
    assert found.because == ("replaced a by x: leaving", "left b")


@pytest.mark.parametrize(
    ("leave", "join", "waiting", "says"),
    [
        (("z",), (), (), "member 'z' is not in the group, so it cannot leave. Members: a, b"),
        ((), ("a",), (), "member 'a' is in the group already"),
        ((), ("w",), ("w",), "member 'w' is in the group already"),
        (("a", "a"), (), (), "member 'a' is named twice"),
        ((), ("x", "x"), (), "member 'x' is named twice"),
        ((), ("",), (), "member name is empty"),
        (("a", "b"), (), (), "no member would be left"),
    ],
)
def test_what_cannot_be_planned(leave, join, waiting, says):
    with pytest.raises(ConfigError, match=says):
        after(version("a", "b"), leave, join, waiting)


def test_members_of_a_group_without_a_version_yet():
    assert after(version(), join=("a", "b")).ranks == ("a", "b")


# ── a version as a map ───────────────────────────────────────────────────────────────────────────


def test_map_of_a_size_and_of_a_version():
    assert (RoleMap.of(3).size, RoleMap.of(3).ranks) == (3, ())
    by = RoleMap.of(version("a", "b", r="b", s="gone"))
    assert (by.size, by.scheme.name, dict(by.pins)) == (2, "jump", {"r": 1})


@pytest.mark.parametrize(
    ("given", "scheme", "says"),
    [
        (-1, "jump", "the size is 0 to"),
        (True, "jump", "the size is an int, not bool"),
        ("orders", "jump", "a number of ranks or by a version, not by str"),
        (version("a", "a"), "jump", "more than one rank"),
        (version("a"), "balanced:4", "the version's scheme is 'jump', not 'balanced:4'"),
    ],
)
def test_what_maps_no_roles(given, scheme, says):
    with pytest.raises(ConfigError, match=says):
        RoleMap.of(given, scheme)


def test_scheme_that_is_unknown_here():
    for by, scheme in ((3, "mine@1#0"), (version("a", scheme="mine@1#0"), "jump")):
        with pytest.raises(UnknownScheme):
            RoleMap.of(by, scheme)


# ── counting ─────────────────────────────────────────────────────────────────────────────────────

names = st.lists(st.one_of(st.none(), st.text("ab/01", max_size=4)), max_size=40)
groups = st.lists(st.sampled_from("uvwxyz"), unique=True, max_size=6)
kinds = st.sampled_from(["jump", "balanced:2"])
pinned = st.dictionaries(st.text("ab/01", max_size=4), st.sampled_from("uvwxyz"), max_size=4)


@given(st.lists(names, max_size=3), groups, groups, kinds, pinned, pinned)
def test_batches_are_counted_by_their_owners_before_and_after(batches, was, gets, kind, old, new):
    before, then = version(*was, scheme=kind, **old), version(*gets, scheme=kind, **new)
    maps = RoleMap.of(before), RoleMap.of(then)
    arrow = [pa.record_batch([pa.array(one, pa.string())], ["role"]) for one in batches]
    (found,) = tally(*maps)(iter(arrow))
    assert found.schema.types == [pa.int32(), pa.int32(), pa.int64()]
    counted = {}
    for row in found.to_pylist():
        key = (row["before"], row["after"])
        assert key not in counted
        counted[key] = row["roles"]
    expected = Counter()
    for name in (name for batch in batches for name in batch):
        if name is None:
            expected[None, None] += 1
            continue
        owners = (owner_of(one, name, rank_of_) for one in (before, then))
        ranks = zip(owners, (was, gets), strict=True)
        expected[tuple(-1 if one is None else of.index(one) for one, of in ranks)] += 1
    assert counted == dict(expected)


def rank_of_(role, scheme, size):
    return rank_of(role, size, scheme)


def test_all_figures_follow_from_the_pairs():
    before, then = version("a", "b"), version("a", "c")
    plan = summed(before, then, {("a", "a"): 60, ("b", "c"): 30, ("b", "a"): 10}, unnamed=5)
    assert (plan.roles, plan.unnamed, plan.moved, plan.share_moved) == (100, 5, 40, 0.4)
    assert plan.flows == (Flow("b", "c", 30), Flow("b", "a", 10))
    assert [(one.member, one.roles, one.ratio) for one in plan.balance_before] == [
        ("a", 60, 1.2),
        ("b", 40, 0.8),
    ]
    assert [(one.member, one.rank, one.roles) for one in plan.balance_after] == [
        ("a", 0, 70),
        ("c", 1, 30),
    ]
    told = json.loads(json.dumps(plan.as_json()))
    assert told["flows"] == [
        {"from": "b", "to": "c", "roles": 30},
        {"from": "b", "to": "a", "roles": 10},
    ]
    assert (told["ranks_before"], told["ranks_after"]) == (["a", "b"], ["a", "c"])


def test_no_roles_at_all():
    plan = summed(version("a"), version("a", "b"), {})
    assert (plan.roles, plan.moved, plan.share_moved) == (0, 0, 0.0)
    assert [one.ratio for one in plan.balance_after] == [0.0, 0.0]


def test_roles_that_nobody_had():
    plan = summed(version(), version("a"), {(None, "a"): 3})
    assert plan.flows == (Flow(None, "a", 3),)
    assert (plan.balance_before, plan.moved) == ((), 3)
