"""Test that the checks of the flights example find each fault."""

import pytest
from common.checks import summary
from flights_demo import checks
from flights_demo.checks import Holding
from flights_demo.data import Total

LEASE_LEFT = 2.0


def event(at, member, what, **facts):
    return {"at": at, "member": member, "what": what, **facts}


def held(member, start, end, *, token=1, role="r"):
    return [
        event(start, member, "granted", role=role, token=token),
        event(end, member, "released", role=role, token=token),
    ]


def overlaps(events):
    return checks.overlaps(checks.holdings(events), LEASE_LEFT)


def test_hand_over_is_no_overlap():
    assert overlaps(held("a", 0, 1) + held("b", 1, 2, token=2)) == []


def test_two_live_holders_of_one_role_are_an_overlap():
    [overlap] = overlaps(held("a", 0, 1) + held("b", 0.5, 2, token=2))
    assert "b got it 0.500 s too early, from a" in overlap


def test_overlap_with_one_who_is_not_the_last_holder_is_found():
    events = held("a", 0, 9) + held("b", 0.5, 1, token=2) + held("c", 5, 6, token=3)
    assert len(overlaps(events)) == 2


def test_role_that_was_never_let_go_overlaps_with_any_later_holder():
    forgotten = [event(0, "a", "granted", role="r", token=1)]
    assert len(overlaps(forgotten + held("b", 100, 101, token=2))) == 1


def test_different_roles_do_not_overlap():
    assert overlaps(held("a", 0, 1) + held("b", 0, 1, role="other")) == []


@pytest.mark.parametrize(("regained", "count"), [(3.1, 0), (2.9, 1)])
def test_frozen_holders_claim_lasts_as_long_as_its_lease(regained, count):
    events = [*held("a", 0, 5), event(1, "onlooker", "frozen", target="a")]
    events += held("b", regained, 6, token=2)
    assert len(overlaps(events)) == count


def test_what_a_frozen_holder_thinks_after_its_thaw_is_counted_apart():
    events = [*held("a", 0, 5), event(1, "onlooker", "frozen", target="a")]
    events += held("b", 4, 6, token=2)
    assert checks.frozen_overlaps(checks.holdings(events)) == [1]


def test_grant_after_the_thaw_is_judged_like_any_other():
    events = [
        event(1, "onlooker", "frozen", target="a"),
        event(4, "onlooker", "thawed", target="a"),
    ]
    events += held("a", 5, 7) + held("b", 6, 8, token=2)
    assert len(overlaps(events)) == 1


def test_killed_holder_ends_with_the_kill():
    events = [
        event(0, "a", "granted", role="r", token=1),
        event(1, "onlooker", "killed", target="a"),
    ]
    assert checks.holdings(events) == [Holding("r", "a", 1, 0, 1, "killed", 1)]
    assert overlaps(events + held("b", 3.1, 4, token=2)) == []
    assert len(overlaps(events + held("b", 2.9, 4, token=2))) == 1


def test_member_may_be_granted_a_role_twice_with_one_token():
    assert len(checks.holdings(held("a", 0, 1) + held("a", 2, 3))) == 2


@pytest.mark.parametrize("token", [4, 5])
def test_token_that_does_not_rise_from_holder_to_holder_is_found(token):
    events = held("a", 0, 1, token=5) + held("b", 2, 3, token=token)
    assert len(checks.tokens_not_rising(checks.holdings(events))) == 1


def test_rising_token_is_fine():
    events = held("a", 0, 1, token=5) + held("b", 2, 3, token=6)
    assert checks.tokens_not_rising(checks.holdings(events)) == []


def test_write_let_through_after_a_greater_token_is_found():
    writes = [("r", 5, "a", 0, 1), ("r", 6, "b", 1, 1), ("r", 5, "a", 1, 1), ("s", 1, "a", 0, 1)]
    assert checks.stale_accepted(writes) == ["r: a wrote with 5 after 6"]


@pytest.mark.parametrize(
    ("chunks", "fault"),
    [
        ([(0, 2), (2, 2), (4, 1)], None),
        ([(0, 2), (2, 2), (2, 2), (4, 1)], "again"),
        ([(0, 2), (4, 1)], "hole"),
        ([(0, 2), (2, 2)], "4 of 5"),
        ([], "0 of 5"),
    ],
)
def test_each_chunk_is_there_exactly_once(chunks, fault):
    writes = [("r", 1, "a", first, count) for first, count in chunks]
    lines = checks.wrong_chunks([*writes, ("carrier/UA", 1, "a", None, 0)], {"r": 5})
    assert (not lines) if fault is None else any(fault in line for line in lines)


def test_totals_that_differ_are_found_on_both_sides():
    good = {("UA", 1): Total(3, 1, 7)}
    assert checks.wrong_totals(good, good) == []
    assert len(checks.wrong_totals(good, {("UA", 1): Total(3, 1, 8)})) == 1
    assert len(checks.wrong_totals({}, good)) == 1
    assert len(checks.wrong_totals(good, {})) == 1


def test_gaps_are_told_apart_by_what_ended_the_holder_before():
    phases = [(0, "start"), (1, "deploy 1/3"), (3, "after the deploy")]
    events = held("a", 0, 2) + held("b", 2.25, 4, token=2) + held("c", 4.5, 8, token=3)
    events += [event(6, "onlooker", "frozen", target="c"), *held("d", 9, 10, token=4)]
    gaps = checks.gaps(checks.holdings(events), phases)
    assert gaps == {"replaced": [0.25], "rebalanced": [0.5], "frozen": [3]}
    assert summary(gaps["replaced"]) == {"count": 1, "p50_ms": 250, "max_ms": 250}


def test_moves_in_the_deploy_are_counted_per_role():
    phases = [(0, "start"), (1, "deploy 1/3"), (3, "after the deploy")]
    events = held("a", 0, 2) + held("b", 2, 4, token=2) + held("c", 4, 5, token=3)
    events += held("a", 0, 9, role="still")
    moves = checks.moves_in_deploy(checks.holdings(events), phases)
    assert moves == {"r": 1, "still": 0}


def version(at, number, *ranks, member="a"):
    return event(at, member, "version", number=number, ranks=list(ranks))


def test_version_that_two_members_saw_differently_is_found():
    log, differing = checks.versions(
        [version(0, 1, "a"), version(0, 2, "a", "b"), version(1, 2, "b", "a", member="b")]
    )
    assert log == {1: ["a"], 2: ["a", "b"]}
    assert len(differing) == 1


def test_rank_moves_are_counted_once_per_version_and_by_phase():
    events = [
        event(0, "onlooker", "phase", name="start"),
        version(1, 1, "a", "b"),
        version(1, 1, "a", "b", member="b"),
        event(2, "onlooker", "phase", name="deploy 1/3"),
        version(3, 2, "c", "b"),
        version(4, 1, "a", "b", member="c"),  # a newcomer reads the log from its beginning
        event(5, "onlooker", "phase", name="kill"),
        version(6, 3, "c"),
    ]
    assert checks.rank_moves(events) == {
        "start": {0: 0, 1: 0},
        "deploy": {0: 1, 1: 0},
        "kill": {0: 0},
    }
    assert checks.rank_histories(checks.versions(events)[0]) == [["a", "c"], ["b"]]
