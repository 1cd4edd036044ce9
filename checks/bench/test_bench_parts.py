"""Test how the parts of the bench evaluate their readings."""

import gc
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

from arena import Metrics, filesystem
from parts import deploy, events, handover_stages, spark_roles, writes


def test_revisions_are_told_apart():
    events = [
        (0.0, "p/g/members/new", "put", 1, 1),
        (0.1, "p/g/members/b", "put", 1, 2),
        (0.2, "p/g/versions/0000000000000002", "put", 1, 3),
        (0.3, "p/g/members/new", "put", 1, 4),
        (0.4, "p/g/members/b", "put", 1, 5),
        (0.5, "p/g/members/a", "put", 1, 6),
        (0.6, "p/g/members/b", "delete", 1, 7),
    ]
    assert writes._kinds(events) == dict.fromkeys(writes.KINDS, 1)


def test_moves_and_gaps_of_a_deploy():
    stamps = [
        (1.0, "let go", "x"),
        (1.5, "gained", "x"),
        (2.0, "let go", "y"),
        (2.25, "gained", "y"),
        (3.0, "let go", "x"),
        (3.125, "gained", "x"),
    ]
    moves, versions, gap = deploy._figures(stamps, 3)
    assert (moves.value, moves.is_met) == (2, False)
    assert (versions.value, versions.is_met) == (3, True)
    assert (gap.value, gap.more["gaps_ms"]) == (500, [125, 250, 500])


def test_whose_write_was_waited_for_last():
    notes = [
        (1.0, "new owner", "delivered", "deletion of members/m1"),
        (2.0, "new owner", "delivered", "put of members/m2"),
        (2.0, "leaver", "delivered", "put of members/m2"),
    ]
    assert handover_stages.waits_for_own_claim(notes, 2.0, "m2")
    assert not handover_stages.waits_for_own_claim(notes, 1.0, "m2")
    assert not handover_stages.waits_for_own_claim(notes, 2.0, "m3")


def test_metrics_are_summed_over_their_labels():
    before = Metrics({'calls{method="a"}': 1, 'calls{method="b"}': 2, "calls_more": 100})
    after = Metrics({'calls{method="a"}': 4, 'calls{method="b"}': 3, "calls_more": 200})
    assert after.total("calls") == 7
    assert after.total("calls", 'method="a"') == 4
    assert after.since(before, "calls") == 4


def test_kind_of_a_file_system():
    assert filesystem(Path("/proc/self")) == "proc"
    assert filesystem(Path("/proc-like-name")) != "proc"


def test_middle_round_is_shown_with_the_limit_of_the_same_round():
    """The middle round counts, with the limit of that round."""
    rates = {
        "native.10": [8.0, 20.0, 24.0],
        # 0.5, 0.3 and 0.4 of the limits before and after it, as if in one run
        "assign.10": [4.8, 6.0, 12.0],
        "native_after.10": [12.0, 20.0, 40.0],
        "zeros.10": [6.0, 4.0, 10.0],  # 0.5, 0.2 and 0.25 of the nearest limit
        "native.99": [1.0],
        "native_after.99": [1.0],
        "plain.2": [1.0],
    }
    rate, limits = spark_roles._middle(rates, 10)
    assert rate == {"native": 8.0, "assign": 12.0, "native_after": 20.0, "zeros": 10.0}
    assert limits == {
        "native": 12.0, "assign": pytest.approx(30.0), "native_after": 20.0, "zeros": 40.0,
    }  # fmt: skip


def test_events_count_by_the_round_with_the_median_ratio():
    # The ratios are 2, 1.5 and 3: the machine was slower in the first round.
    assert events.median_round([40.0, 15.0, 30.0], [20.0, 10.0, 10.0]) == (40.0, 20.0)


class _Noted:
    """Note the turns of a group."""

    def __init__(self, name: str, turns: list[str]) -> None:
        self.name, self.turns = name, turns

    def times(self, count: int) -> list[float]:
        self.turns.append(self.name)
        return [1.0, 5.0, 2.0]


def test_events_every_second_round_goes_the_other_way():
    turns: list[str] = []
    medians = events.by_turns([_Noted(name, turns) for name in "ab"], rounds=3)
    assert turns == ["a", "b", "b", "a", "a", "b"]
    assert medians == [[2.0] * 3] * 2
    assert gc.isenabled()


def test_events_of_a_group_have_times_and_go_on():
    group = events.Timed(5)
    group.want(3, is_mine=True)
    before = group.revision
    assert len(group.times(2)) == len(group.times(2)) == 2
    assert group.revision == before + 4
