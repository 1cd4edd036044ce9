"""Test the claims of others, and the gate that every grant passes."""

from rink.core.claims import Gate, Obstacles, closed
from rink.core.member_record import MemberRecord, Share
from rink.core.placement import Placement
from rink.core.unsettled_records import unsettled_in
from rink.core.values import Member, Version
from rink.core.view import View, shares_of

PLACES = Placement()
A, B = Share(0, 2, "jump"), Share(1, 2, "jump")
OWNED = shares_of(Version(2, ("a", "b"), "jump"), PLACES.rank)
IN_A = next(role for role in "pqrstuvwxyz" if PLACES.rank(role, "jump", 2) == 0)
IN_B = next(role for role in "pqrstuvwxyz" if PLACES.rank(role, "jump", 2) == 1)


def obstacles(lease=1, problem="", **record):
    value = None if problem else MemberRecord("i", 60, **record)
    members = [
        Member("a", MemberRecord("j", 60, draining=(IN_A, IN_B)), 1, 1, 1),
        Member("b", value, 2, 2, lease, problem),
    ]
    unsettled = unsettled_in(View.listed(3, members).by_age, OWNED)
    return Obstacles.of(unsettled, "a", OWNED, PLACES)


def test_own_record_and_shares_of_the_newest_version_are_no_obstacles():
    assert obstacles(shares=(B,)) == Obstacles()


def test_share_of_another_version_claims_what_lies_in_it():
    found = obstacles(shares=(Share(0, 1, "jump"),))
    assert found.to(IN_A, PLACES) == "b: still claims it, as rank 0 of 1"
    found = obstacles(shares=(B, A))
    assert found.to(IN_A, PLACES) == "b: still claims it, as rank 0 of 2"
    assert found.to(IN_B, PLACES) == ""


def test_every_share_of_a_record_claims_not_only_the_newest():
    older = Share(1, 2, "jump", gained=frozenset({IN_A}))
    assert obstacles(shares=(B, older)).to(IN_A, PLACES)


def test_pin_moves_the_claim_of_a_share():
    taken = Share(0, 2, "jump", taken=frozenset({IN_A}))
    assert obstacles(shares=(taken,)).to(IN_A, PLACES) == ""
    assert obstacles(shares=(Share(0, 5, "jump", gained=frozenset({IN_B})),)).to(IN_B, PLACES)


def test_draining_role_is_claimed_and_only_that():
    found = obstacles(shares=(B,), draining=(IN_A,))
    assert found.to(IN_A, PLACES) == "b: has not released it yet"
    assert found.to("another", PLACES) == ""


def test_what_cannot_be_read_or_computed_claims_everything():
    assert obstacles(problem="has format 2").to("x", PLACES) == "b: its record has format 2"
    unknown = obstacles(shares=(Share(0, 1, "odd@1#0"),)).to("x", PLACES)
    assert unknown == "b: it claims by scheme 'odd@1#0', which is not known here"


def test_record_without_a_lease_claims_nothing():
    assert obstacles(lease=0, shares=(A,), draining=("x",)) == Obstacles()


def test_role_that_cannot_be_placed_is_in_everybodys_way(monkeypatch):
    found = obstacles(shares=(Share(1, 3, "jump"),))
    places = Placement()
    places.ranks("jump", 3)["poison"] = None
    assert found.to("poison", places) == "b: still claims it, as rank 1 of 3"


def test_gate_lets_through_what_lies_in_its_share_and_is_free():
    gate = Gate(A, lambda: obstacles(shares=(Share(0, 1, "jump"),)), 7, 2, "", {})
    assert gate.is_mine(IN_A, PLACES)
    assert not gate.is_mine(IN_B, PLACES)
    assert gate.is_anothers(IN_B, PLACES)
    assert not gate.is_anothers(IN_A, PLACES)
    assert gate.obstacle(IN_A, PLACES) == "b: still claims it, as rank 0 of 1"


def test_claims_of_others_are_sought_only_when_a_role_is_requested(pair, monkeypatch):
    """Avoid a look at all records, of which a group may have hundreds."""
    asked = []
    seek = Obstacles.of
    monkeypatch.setattr(Obstacles, "of", lambda found, *rest: asked.append(1) or seek(found, *rest))
    pair.add("c", rebalance_delay=0.0)
    pair.sleep(1.0)
    assert len(pair.version.ranks) == 3
    assert asked == []
    gate = pair.node("a").table.gate
    assert gate.obstacles is gate.obstacles
    assert asked == [1]


def test_role_that_cannot_be_placed_is_neither_mine_nor_anothers():
    places = Placement()
    ranks = places.ranks("jump", 2)
    ranks["poison"] = None
    gate = Gate(A, Obstacles, 7, 2, "", ranks)
    assert not gate.is_mine("poison", places)
    assert not gate.is_anothers("poison", places)


def test_closed_gate_says_why_and_lets_nothing_through():
    gate = closed("the session is lost")
    assert not gate.is_mine("x", PLACES)
    assert not gate.is_anothers("x", PLACES)
    assert gate.obstacle("x", PLACES) == "the session is lost"
