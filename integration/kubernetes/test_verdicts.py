"""Test that the judge of rollouts reports bad histories.

No server is needed.
"""

import attrs
import pytest
from happenings import bystanders
from rollouts import Happened
from scenarios import BY_NAME, PEERS, ROLES, SCENARIOS, SIDECARS, Limits, Scenario
from verdicts import HEADS, cells, judged, markdown

from rink.testing.history import HistoryEvent, judge

ALL = [f"role-{number}" for number in range(ROLES)]
ONE_MOVE = Limits(mean=1.0, most=1, gap_p99=0.5)
BEGAN = 10.0


def held(who, at, token, roles=ALL):
    return [HistoryEvent("gained", who, at, role, token) for role in roles]


def let_go(who, at, token, roles=ALL):
    return [HistoryEvent("let go", who, at, role, token) for role in roles]


def moved(*, gap=0.01, roles=ALL):
    """Return a history in which these roles move once, from `old` to `new`."""
    return [
        *held("old", 1.0, 1),
        *let_go("old", 20.0, 1, roles),
        *held("new", 20.0 + gap, 2, roles),
    ]


def verdict(events, limits=ONE_MOVE, struck=None, starts=(1.0,), healthy_moves=None):
    happened = Happened(
        began=BEGAN,
        struck=struck,
        judgement=judge(events),
        starts=list(starts),
        changes=1,
        seconds=30.0,
        healthy_moves=healthy_moves,
    )
    return judged(Scenario(name="row", says="a row", limits=limits), happened)


def test_verdict_on_one_move_each_misses_nothing():
    good = verdict(moved())
    assert good.misses == ()
    assert (good.mean, good.most, good.overlaps) == (1.0, 1, 0)
    assert good.gap == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("events", "limits", "word"),
    [
        (moved(roles=ALL[1:]), ONE_MOVE, "not 1.00"),
        (
            [*moved(), *let_go("new", 30.0, 2, ALL[:1]), *held("old", 30.1, 3, ALL[:1])],
            attrs.evolve(ONE_MOVE, mean=None),
            "moves of one role",
        ),
        (moved(gap=0.6), ONE_MOVE, "99 % of the gaps"),
        (moved(gap=2.1), Limits(gap_beyond_start=1.0), "longest gap"),
        (moved(), Limits(most=0), "moves of one role"),
        ([*moved(), *let_go("new", 30.0, 2, ALL[:1])], Limits(), "nobody holds"),
        ([*held("old", 1.0, 1), *held("new", 20.0, 2)], Limits(), "while old held it"),
        (moved()[:-1], Limits(), "nobody holds"),
    ],
)
def test_verdict_on_a_bad_history_says_what_is_wrong(events, limits, word):
    assert word in " ".join(verdict(events, limits).misses)


def test_verdict_on_a_fault_counts_until_each_role_is_held():
    limits = Limits(settled=23.0)
    events = [*held("old", 1.0, 1), HistoryEvent("ended", "old", 15.0), *held("new", 37.0, 2)]
    good = verdict(events, limits, struck=15.0)
    assert good.settled == pytest.approx(22.0)
    assert good.misses == ()
    assert "until each role" in verdict(events, Limits(settled=21.0), struck=15.0).misses[0]


def test_verdict_on_roles_that_leave_healthy_pods_says_how_many():
    limits = Limits(healthy_moves=0)
    assert verdict(moved(), limits, healthy_moves=0).misses == ()
    assert verdict(moved(), limits, healthy_moves=2).misses == (
        "2 moves away from pods that kept their rank, at most 0.00",
    )


def test_pods_that_keep_their_rank_are_all_unless_one_was_ended():
    ranks = {"a": 0, "b": 1, "c": 2, "d": 3}
    assert bystanders(ranks, {*ranks, "standby"}) == ranks.keys()
    assert bystanders(ranks, {"a", "c", "d"}) == {"a", "c"}, "d takes the rank of b"
    assert bystanders(ranks, {"a", "b", "c"}) == {"a", "b", "c"}
    assert bystanders(ranks, set()) == set()


def test_verdict_counts_no_gap_and_no_move_from_before_the_rollout():
    before = [*held("first", 1.0, 1), *let_go("first", 2.0, 1), *held("old", 5.0, 2)]
    after = [*let_go("old", 20.0, 2), *held("new", 20.1, 3)]
    assert verdict(before + after).misses == ()


def test_rows_have_names_of_their_own_that_namespaces_may_have():
    names = list(BY_NAME)
    assert len(names) == len(SCENARIOS) + len(SIDECARS) + len(PEERS)
    assert all(name.replace("-", "").isalnum() and name.islower() for name in names)


def test_table_has_a_cell_for_each_head():
    row = verdict(moved())
    assert len(cells(row)) == len(HEADS)
    assert markdown([row]).count("\n") == 3
