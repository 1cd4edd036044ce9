"""Run a few of each fault; `make sidecar-faults` runs hundreds."""

import random
from collections import Counter

import pytest

from rink.testing.history import HistoryEvent
from safety.faults import FAULTS
from safety.lanes import Lanes, Run
from safety.stage import Resources, Stage, Write, kind_of

pytestmark = pytest.mark.waits

LANES = 6
RUNS = 2


@pytest.mark.timeout(300)
def test_faults_beside_sidecars_overlap_nothing(etcd_node):
    """Run each fault several times, with new seeds.

    This is one test, since several would start all these processes in each process of pytest.
    """
    found = []
    seed = random.randrange(1_000, 1_000_000)
    runs = [Run(fault.name, number, seed) for number in range(RUNS) for fault in FAULTS]
    troubles = Lanes(etcd_node, runs, LANES, found.append).carry_out()
    assert troubles == []
    assert Counter(run.fault for run in found) == {fault.name: RUNS for fault in FAULTS}
    for run in found:
        where = f"{run.fault}, seed {run.seed}"
        assert run.problems == (), where
        assert (run.stale, run.overlaps) == (0, 0), where
        assert run.accepted > 0, f"{where}: nobody wrote, so nothing was shown"


# ── bad histories, which the verdict must complain of ────────────────────────────────────────


@pytest.mark.parametrize(
    ("at", "until", "frozen", "kind"),
    [
        (10.0, 10.5, [], "overlap"),
        (10.0, 10.5, [(9.0, 9.9)], "overlap"),
        (10.6, 10.5, [(9.95, 10.55)], "stopped"),
        (10.6, 10.5, [(9.0, 9.5)], "late"),
        (10.6, 10.5, [], "late"),
    ],
)
def test_stale_write_is_told_apart_by_end_and_freeze(at, until, frozen, kind):
    assert kind_of(Write("a1", "r", 4, at, until, checked=9.97), frozen) == kind


def test_resource_refuses_a_token_below_the_greatest():
    resources = Resources()
    accepted = [resources.write("a1", "r", token, 9.0, 8.0) for token in (4, 6, 4, 6)]
    assert accepted == [True, True, False, True]
    assert [event.what for event in resources.events][2] == "refused"
    assert len(resources.writes) == 4


def bad_stage(events, writes):
    stage = Stage(None, [], "seed", 1, {}, "")
    for event in events:
        stage.history.add(event)
    stage.resources.writes += writes
    return stage


def test_verdict_names_turns_and_writes_that_overlap():
    gained = [HistoryEvent("gained", "a1", 1.0, "r", 4), HistoryEvent("gained", "b1", 2.0, "r", 6)]
    writes = [Write("b1", "r", 6, 2.1, 3.0, 2.1), Write("a1", "r", 4, 2.2, 2.5, 2.2)]
    verdict = verdict_of(bad_stage(gained, writes))
    assert verdict.overlaps == 2
    assert Counter("came after" in problem for problem in verdict.problems) == {True: 1, False: 1}


@pytest.mark.parametrize(("gained_at", "stopped_at"), [(2.3, 2.5), (2.3, 2.2)])
def test_stop_of_a_program_is_after_what_it_reported_last(gained_at, stopped_at):
    """A program that was sent SIGSTOP still gained a role after it."""
    events = [
        HistoryEvent("gained", "b1", 1.0, "r", 4),
        HistoryEvent("let go", "b1", 2.1, "r", 4),
        HistoryEvent("gained", "a1", gained_at, "r", 6),
        HistoryEvent("ended", "a1", 2.0),
        HistoryEvent("gained", "b1", 2.4, "r", 8),
    ]
    stage = bad_stage(events, [])
    verdict = verdict_of(stage, stops=[(2.0, stopped_at)])
    assert (verdict.overlaps == 0) == (gained_at <= stopped_at)


def test_end_that_passed_before_a_kill_needs_no_report():
    events = [
        HistoryEvent("gained", "a1", 1.0, "r", 4),
        HistoryEvent("gained", "b1", 2.0, "r", 6),
        HistoryEvent("ended", "a1", 2.1),
    ]
    stage = bad_stage(events, [])
    assert verdict_of(stage).overlaps == 1
    stage._ends["a1", "r", 4] = 1.9
    assert verdict_of(stage).overlaps == 0


def test_verdict_names_a_write_after_the_end_that_was_checked():
    verdict = verdict_of(bad_stage([], [Write("a1", "r", 4, 2.0, 1.5, 1.6)]))
    assert ["the program itself is wrong" in problem for problem in verdict.problems] == [True]


def verdict_of(stage, stops=()):
    stage.programs = [
        type("Program", (), {"who": who, "frozen": [], "stops": stops}) for who in ("a1", "b1")
    ]
    return stage.verdict("bad", "seed", 1.0)
