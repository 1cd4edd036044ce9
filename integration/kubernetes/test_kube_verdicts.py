"""Test that the judges of the parts of `make k8s` report faults.

No server is needed.
"""

import pytest
from dry_run import MISSPELT, Tried, verdict
from flights_roll import FLIGHTS, Rolled
from flights_roll import verdict as flights_verdict
from label_part import HAND_OVERS, MAX_GAP_S, Seen
from label_part import verdict as label_verdict

GOOD = [Tried("deploy/one: Job one", None)]
BAD = [Tried("deploy/one: Job one", "422 Invalid")]
REFUSED = f'unknown field "spec.{MISSPELT}"'


@pytest.mark.parametrize(
    ("tried", "pods", "misspelt", "words"),
    [
        (BAD, GOOD, REFUSED, "deploy/one: Job one: 422 Invalid"),
        (GOOD, BAD, REFUSED, "deploy/one: Job one: 422 Invalid"),
        ([], GOOD, REFUSED, "there are no manifests"),
        (GOOD, [], REFUSED, "no pods"),
        (GOOD, GOOD, None, "was not refused by name: None"),
        (GOOD, GOOD, "the apiserver has gone", "was not refused by name: the apiserver has gone"),
    ],
)
def test_verdict_on_a_dry_run_names_what_is_wrong(tried, pods, misspelt, words):
    (miss,) = verdict(tried, pods, misspelt, 1.0).misses
    assert words in miss


def test_verdict_on_a_good_dry_run_misses_nothing():
    assert verdict(GOOD, GOOD, REFUSED, 1.0).misses == ()


TOTALS = {"flights": FLIGHTS, "cancelled": 1, "delay": 2}


def rolled(*, before=300, after=500, succeeded=True, **report):
    good = {
        "faults": {"jobs not done": []},
        "flights": TOTALS,
        "expected": TOTALS,
        "jobs": 1000,
        "moves_per_carrier": {"mean": 1.0, "most": 1},
    }
    return Rolled(
        jobs_before=before,
        jobs_after=after,
        roll_seconds=7.0,
        job_succeeded=succeeded,
        report=good | report,
    )


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"faults": {"jobs not done": ["UA/2013-01-01"]}}, "jobs not done: ['UA/2013-01-01']"),
        ({"succeeded": False}, "the check's Job failed"),
        ({"expected": TOTALS | {"delay": 3}}, "'delay': 2}, not "),
        ({"moves_per_carrier": {"mean": 1.0, "most": 2}}, "1.00 moves per role, at most 2"),
        ({"moves_per_carrier": {"mean": 0.94, "most": 1}}, "0.94 moves per role, at most 1"),
        ({"before": 0}, "not amid the work: 0 jobs were done before"),
        ({"after": 300}, "not amid the work: 300 jobs were done before, and 300"),
        ({"after": 1000}, "not amid the work: 300 jobs were done before, and 1,000 of 1,000"),
    ],
)
def test_verdict_on_a_bad_roll_of_flights_names_what_is_wrong(bad, words):
    (miss,) = flights_verdict(rolled(**bad), 1.0).misses
    assert words in miss


def test_verdict_on_a_roll_of_fewer_flights_says_so():
    fewer = TOTALS | {"flights": 27_004}
    (miss,) = flights_verdict(rolled(flights=fewer, expected=fewer), 1.0).misses
    assert miss == "27,004 flights are counted, not 336,776"


def test_verdict_on_a_good_roll_of_flights_misses_nothing():
    assert flights_verdict(rolled(), 1.0).misses == ()


def labels(gap_s=0.1, moves=HAND_OVERS, both=()):
    """Return what is seen of a label that moves so often, with such gaps."""
    seen, now = [], 0.0
    for number in range(moves + 1):
        for pods in ({f"web-{number % 2}"}, both, ()):
            seen.append(Seen(now, frozenset(pods)))
            now += gap_s / 2 if not pods else 0.01
    return seen


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"gap_s": 2 * MAX_GAP_S}, "no pod had the label for"),
        ({"moves": HAND_OVERS - 1}, f"{HAND_OVERS - 1} hand-overs were seen"),
        ({"both": ("web-0", "web-1")}, "two pods had the label in"),
    ],
)
def test_verdict_on_bad_labels_names_what_is_wrong(bad, words):
    assert any(words in miss for miss in label_verdict(labels(**bad), 1.0).misses)


def test_verdict_on_good_labels_misses_nothing():
    verdict = label_verdict(labels(), 1.0)
    assert verdict.misses == ()
    assert len(verdict.figures["gaps_s"]) == HAND_OVERS
