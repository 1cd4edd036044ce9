"""Test that the own record claims every unreleased role (R3)."""

from rink.core.holds import Hold
from rink.core.member_record import MemberRecord, Share
from rink.core.own_claims import claims_of
from rink.core.placement import Placement
from rink.core.values import Member
from rink.core.wording import describe

PLACES = Placement()
NEW, OLD, OLDER = Share(0, 3, "jump"), Share(0, 2, "jump"), Share(0, 1, "jump")


def drain(role, share=OLD, version=1):
    return Hold(role, 1, version, share)


def outside(count, share=NEW):
    roles = (f"role-{index}" for index in range(1000))
    return [r for r in roles if not share.has(r, PLACES.rank(r, "jump", share.size))][:count]


def test_what_the_newest_share_covers_is_not_listed():
    covered = next(r for r in map(str, range(99)) if PLACES.rank(r, "jump", 3) == 0)
    role = outside(1)[0]
    drains = [drain(role), drain(covered)]
    assert claims_of(NEW, drains, PLACES, 1000) == ((NEW,), (role,))


def test_member_without_a_share_lists_all_that_drains():
    assert claims_of(None, [drain("b"), drain("a")], PLACES, 1000) == ((), ("a", "b"))
    assert claims_of(None, [], PLACES, 1000) == ((), ())


def test_too_long_a_list_gives_way_to_the_shares_the_roles_were_lost_from():
    roles = outside(20)
    drains = [drain(role, OLDER, 1) for role in roles[:10]] + [drain(r, OLD, 2) for r in roles[10:]]
    assert claims_of(NEW, drains, PLACES, 50) == ((NEW, OLD, OLDER), ())
    assert claims_of(None, drains, PLACES, 50) == ((OLD, OLDER), ())


def test_limit_counts_bytes_with_their_punctuation():
    drains = [drain("é")]
    assert claims_of(None, drains, PLACES, 5) == ((), ("é",))
    assert claims_of(None, drains, PLACES, 4) == ((OLD,), ())


def test_role_pinned_away_is_listed_and_one_pinned_here_is_covered():
    role = outside(1)[0]
    gained = Share(0, 3, "jump", gained=frozenset({role}))
    assert claims_of(gained, [drain(role)], PLACES, 1000) == ((gained,), ())


def test_role_that_cannot_be_placed_any_more_is_listed():
    unknown = Share(0, 3, "odd@1#00")
    assert claims_of(unknown, [drain("x")], PLACES, 1000) == ((unknown,), ("x",))


def test_record_is_described_with_what_it_says_of_itself():
    record = MemberRecord("0123456789", 60, address="host:1", joined="12:00")
    assert describe(Member("a/b", record, 1, 1, 255)) == (
        "the record members/a/b (incarnation 01234567, lease ff joined 12:00 at host:1)"
    )
    bare = describe(Member("a", MemberRecord("01", 60), 1, 1, 10))
    assert bare == "the record members/a (incarnation 01, lease a)"
    assert "has format 2" in describe(Member("a", None, 1, 1, 10, "has format 2"))
