"""Check the standby of each owner, by the coordinator's plan."""

from rink.core import codec
from rink.core.member_record import MemberRecord, Phase
from rink.core.schemes import register
from rink.core.values import Member, Proclaimed, Version
from rink.core.view import View
from rink.inspect.group_status import status_of_view
from rink.inspect.standby import Standby, standbys

ROLES = [f"orders/{number}" for number in range(4)]


def status(ranks, *members, scheme="balanced:4", pins=None, **changed):
    """A group with these ranks, whose members were created in this order."""
    entries = [
        Member(name, record(scheme, **changed.get(name, {})), age, age, 1)
        for age, name in enumerate(members, 1)
    ]
    version = Version(1, tuple(ranks), scheme, pins or {})
    entries.append(Proclaimed(1, version, 100, 1))
    return status_of_view(View.listed(100, entries), "g")


def record(scheme, **changed):
    return MemberRecord("i", 10, **{"schemes": (scheme, "jump"), **changed})


def who(found):
    return [(one.owner, one.next) for one in found.values()]


def test_one_who_waits_stands_by_for_all():
    found = standbys(status("ab", "a", "b", "c", "d"), ROLES)
    assert list(found) == ROLES
    assert who(found) == [("a", "c"), ("a", "c"), ("b", "c"), ("b", "c")]


def test_where_nobody_waits_the_group_shrinks():
    assert who(standbys(status("ab", "a", "b"), ROLES)) == [
        ("a", "b"), ("a", "b"), ("b", "a"), ("b", "a"),
    ]  # fmt: skip


def test_idle_rank_moves_into_the_hole():
    """More members than partitions: the last ones are ranked, and own nothing."""
    assert who(standbys(status("abcdef", *"abcdef"), ROLES)) == [
        ("a", "f"), ("d", "f"), ("b", "f"), ("c", "f"),
    ]  # fmt: skip


def test_lone_member_has_no_standby_and_an_empty_group_no_owner():
    assert set(who(standbys(status("a", "a"), ROLES))) == {("a", None)}
    assert set(who(standbys(status("", "a"), ROLES))) == {(None, None)}
    assert set(who(standbys(status_of_view(View(), "g"), ROLES))) == {(None, None)}


def test_owner_that_is_gone_already_is_named_and_its_standby_too():
    assert who(standbys(status("ab", "b"), ROLES))[0] == ("a", "b")
    assert who(standbys(status("a"), ROLES))[0] == ("a", None)


def test_whoever_cannot_take_over_does_not_stand_by():
    leaving = {"phase": Phase.LEAVING}
    assert who(standbys(status("ab", "a", "b", "c", c=leaving), ROLES))[0] == ("a", "b")
    mine = register(lambda _, __: 0, "standby-tests", 1)
    stranger = {"schemes": ("jump",)}
    found = standbys(status("ab", "a", "b", "c", scheme=mine, c=stranger), ROLES)
    assert who(found)[0] == ("a", "b")


def test_standby_may_list_another_built_in_scheme():
    found = standbys(status("ab", "a", "b", "c", c={"schemes": ("jump",)}), ROLES)
    assert who(found)[0] == ("a", "c")


def test_record_that_cannot_be_read_does_not_stand_by():
    entries = [Member(name, record("balanced:4"), age, age, 1) for age, name in enumerate("ab", 1)]
    entries.append(codec.read(b"", b"members/c", b"?", 3, 3, 1))
    entries.append(Proclaimed(1, Version(1, ("a", "b"), "balanced:4"), 100, 1))
    found = standbys(status_of_view(View.listed(100, entries), "g"), ROLES)
    assert who(found)[0] == ("a", "b")


def test_pin_counts_as_long_as_its_member_is_there():
    found = standbys(status("ab", "a", "b", pins={"orders/0": "b"}), ROLES)
    assert who(found)[:2] == [("b", "a"), ("a", "b")]


def test_by_a_scheme_that_is_not_known_here_nobody_is_named():
    found = standbys(status("ab", "a", "b", scheme="mine@1#123"), ["x"])
    assert found == {"x": Standby(None, None)}


def test_any_role_may_be_asked_for():
    found = standbys(status("ab", "a", "b", scheme="jump"), ["leader", "job-1"])
    assert {one.owner for one in found.values()} <= {"a", "b"}
    assert all(one.next == ({"a", "b"} - {one.owner}).pop() for one in found.values())
