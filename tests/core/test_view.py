"""Test the fold of changes, the coordinator, shares and owners."""

import importlib
import inspect
import pkgutil
from functools import cached_property

import pytest

import rink.core
from rink.core.events import Changed
from rink.core.member_record import MemberRecord, Phase, Share
from rink.core.placement import Placement
from rink.core.values import Clutter, Member, Proclaimed, RequestEntry, Version
from rink.core.view import Gone, View, gone, owner_of, shares_of
from rink.core.view_state import ViewState

RANK_OF = Placement().rank
ROLES = [f"role-{index}" for index in range(200)]


def member(name, create, lease=1, record=None):
    return Member(name, record or MemberRecord("i", 60), create, create, lease)


def test_fold_of_changes_gives_what_a_list_gives():
    first = View.listed(5, [member("a", 1), Proclaimed(1, Version(1, ("a",), "jump"), 5, 1)])
    second = first.changed(7, [member("b", 6), gone(member("a", 1)), Clutter("x", "odd")])
    assert second == View.listed(
        7, [member("b", 6), Proclaimed(1, Version(1, ("a",), "jump"), 5, 1), Clutter("x", "odd")]
    )
    assert "a" in first.members


@pytest.mark.parametrize(
    ("entry", "kind", "key"),
    [
        (member("a", 1), Member, "a"),
        (Proclaimed(3, None, 1, 1), Proclaimed, 3),
        (RequestEntry("u", None, 1), RequestEntry, "u"),
        (Clutter("k", ""), Clutter, "k"),
    ],
)
def test_entry_goes_as_it_came(entry, kind, key):
    assert gone(entry) == Gone(kind, key)
    view = View.listed(1, [entry])
    assert view.changed(2, [gone(entry)]) == View(2)
    assert view.changed(2, [gone(entry), gone(entry)]) == View(2)


def test_newest_version_is_the_one_with_the_highest_number():
    versions = [Proclaimed(n, Version(n, (), "jump"), n, 1) for n in (9, 10, 2)]
    view = View.listed(1, versions)
    assert view.newest.number == 10
    assert view.version.number == 10
    assert View().newest is None
    assert View().version is None


def test_newest_version_that_cannot_be_read_hides_the_older_ones():
    older = Proclaimed(1, Version(1, (), "jump"), 1, 1)
    view = View.listed(2, [older, Proclaimed(2, None, 2, 1, "has format 9")])
    assert view.newest.number == 2
    assert view.version is None


def test_oldest_readable_record_bound_to_a_lease_coordinates():
    unbound, unreadable = member("a", 1, lease=0), Member("b", None, 2, 2, 5, "odd")
    view = View.listed(9, [member("d", 4), member("c", 3), unbound, unreadable])
    assert [m.name for m in view.by_age] == ["b", "c", "d"]
    assert view.coordinator.name == "c"
    assert View().coordinator is None


def test_oldest_of_all_coordinates_only_where_none_is_active():
    leaves = MemberRecord("i", 60, phase=Phase.LEAVING)
    old, older = member("c", 3, record=leaves), member("b", 2, record=leaves)
    assert View.listed(9, [old, older, member("d", 4)]).coordinator.name == "d"
    assert View.listed(9, [old, older]).coordinator.name == "b"


def test_every_key_that_cannot_be_read_is_a_problem():
    view = View.listed(
        9,
        [
            Member("a", None, 1, 1, 1, "odd"),
            Proclaimed(1, None, 1, 1, "odder"),
            RequestEntry("u", None, 1, "worse"),
            Clutter("k", "worst"),
            member("fine", 2),
        ],
    )
    assert view.problems == {
        ("members/a", "odd"),
        ("versions/1", "odder"),
        ("requests/u", "worse"),
        ("k", "worst"),
    }


@pytest.mark.parametrize("pins", [{}, {"role-1": "b", "role-2": "c", "role-3": "nobody"}])
def test_every_role_lies_in_exactly_one_share_and_that_is_its_owners(pins):
    version = Version(1, ("a", "b", "c"), "jump", pins)
    shares = shares_of(version, RANK_OF)
    for role in ROLES:
        having = [n for n, s in shares.items() if s.has(role, RANK_OF(role, s.scheme, s.size))]
        assert having == [owner_of(version, role, RANK_OF)]
        if pins.get(role) in version.ranks:
            assert having == [pins[role]]


def test_pin_to_its_home_or_to_an_unranked_member_changes_no_share():
    home = owner_of(Version(1, ("a", "b"), "jump"), "x", RANK_OF)
    for pinned in (home, "nobody"):
        version = Version(1, ("a", "b"), "jump", {"x": pinned})
        assert shares_of(version, RANK_OF) == {
            "a": Share(0, 2, "jump"),
            "b": Share(1, 2, "jump"),
        }
        assert owner_of(version, "x", RANK_OF) == home


def test_version_without_ranks_or_of_an_unknown_scheme_gives_no_owner():
    assert owner_of(Version(1, (), "jump"), "x", RANK_OF) is None
    assert owner_of(Version(1, ("a",), "other@1#0"), "x", RANK_OF) is None
    assert shares_of(Version(1, (), "jump"), RANK_OF) == {}
    unknown = shares_of(Version(1, ("a", "b"), "other@1#0", {"x": "b"}), RANK_OF)
    assert unknown["b"] == Share(1, 2, "other@1#0")


def test_rank_outside_its_size_is_no_share():
    with pytest.raises(ValueError, match="rank 3 of 3 is no rank"):
        Share(3, 3, "jump")


def test_view_of_an_event_that_was_not_prefetched_is_folded_then():
    view_state = ViewState(view=View(1))
    view_state.change(Changed(2, ()))
    assert view_state.view == View(2)


def test_no_class_of_the_core_has_a_cached_property_with_a_lock():
    """Python 3.11 has one lock for all objects: a fork may leave it taken."""
    for module in pkgutil.iter_modules(rink.core.__path__, "rink.core."):
        for name, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            locked = [at for at, of in vars(kind).items() if isinstance(of, cached_property)]
            assert not locked, f"{name}.{locked}: a class with slots has it from attrs"
