"""Test the bench's own arithmetic.

A wrong percentile or verdict would show nowhere else.
"""

import json
import sys
from pathlib import Path

import attrs
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))

import figures
from figures import Figure, Outcome, PeerFigure, Spread, Table, at_least, at_most, below, percentile
from gaps import gaps_of
from parts.handover_stages import critical_path


@pytest.mark.parametrize(
    ("share", "expected"), [(0, 1), (0.01, 1), (0.5, 50), (0.501, 51), (0.99, 99), (1, 100)]
)
def test_percentile_is_one_of_the_values(share, expected):
    assert percentile(range(100, 0, -1), share) == expected


def test_percentile_of_few_values_is_the_largest():
    assert percentile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert percentile([7.0], 0.5) == 7.0


def test_percentile_of_nothing_or_beyond_is_refused():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile([1.0], 50)


def test_spread():
    assert Spread.of([4, 1, 3, 2]) == Spread(count=4, least=1, p50=2, p99=4, most=4)


def test_targets():
    assert at_least(300).is_met(300)
    assert not at_least(300).is_met(299)
    assert at_most(0.2).is_met(0.2)
    assert not at_most(0.2).is_met(0.21)
    assert below(3).is_met(2.9)
    assert not below(3).is_met(3)
    assert at_least(1_000_000).says == "≥ 1,000,000"


def test_figure_knows_its_ratio_and_verdict():
    figure = Figure(
        key="a", what="A", value=6, unit="ms", limit=2, target=at_most(6, "≤ 3 x limit")
    )
    assert (figure.by_limit, figure.is_met) == (3, True)
    assert Figure(key="a", what="A", value=6, unit="ms").is_met is None


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [
        (1_234_567.8, "/s", "1,234,568/s"),
        (12.34, "ms", "12.3 ms"),
        (2.463, "ms", "2.46 ms"),
        (0.0421, "% of a core", "0.042% of a core"),
        (5, "", "5"),
        (5.0, "", "5"),
        (0, "", "0"),
    ],
)
def test_values_for_people(value, unit, expected):
    assert figures.shown(value, unit) == expected


@pytest.fixture
def outcome():
    return Outcome(
        part="p",
        title="P",
        figures=[
            Figure(key="a", what="A", value=4, unit="ms", limit=2, limit_is="the least"),
            Figure(key="b", what="B", value=9, unit="", target=at_most(8), note="n"),
        ],
        peers=[PeerFigure(peer="other", key="a", value=100, unit="ms", note="slow")],
        tables=[Table(title="T", heads=["x", "y"], rows=[["1|2", "3"]])],
    )


def test_peer_stands_beside_the_figure_of_its_key(outcome):
    heads, rows = figures.rows(outcome, outcome.peers)
    assert heads == ["figure", "measured", "limit", "x limit", "target", "met", "other"]
    assert rows == [
        ["A", "4 ms", "2 ms", "2.00", "", "", "100 ms (slow)"],
        ["B (n)", "9", "", "", "≤ 8", "NO", ""],
    ]


def test_peer_of_other_figures_has_no_column(outcome):
    stranger = PeerFigure(peer="stranger", key="z", value=1, unit="")
    assert "stranger" not in figures.rows(outcome, [stranger])[0]


def test_page(outcome):
    page = figures.markdown({"cores": "2"}, [outcome])
    assert "- cores: 2\n" in page
    assert "| A | 4 ms | 2 ms | 2.00 |  |  | 100 ms (slow) |" in page
    assert "Limit: the least." in page
    assert "| 1\\|2 | 3 |" in page


def test_json_says_the_verdicts(outcome):
    (part,) = figures.as_json({}, [outcome])["parts"]
    assert [(figure["by_limit"], figure["is_met"]) for figure in part["figures"]] == [
        (2, None),
        (None, False),
    ]


def test_saved_run_reads_as_it_was(outcome):
    saved = json.loads(json.dumps(figures.as_json({}, [outcome])))
    assert figures.from_json(saved) == [outcome]


def test_whether_others_used_the_machine_is_said(outcome):
    quiet = attrs.evolve(outcome, when="today", others=0.04)
    assert figures.remarks(outcome) == []
    assert figures.remarks(quiet)[-1].endswith("used 4% of the machine meanwhile.")
    loud = attrs.evolve(quiet, others=0.5)
    assert figures.remarks(loud)[-1].endswith(": alone, times would be shorter.")


def test_gaps_of_moved_roles_are_paired_by_role():
    stamps = [
        (5.0, "let go", "x"),
        (5.5, "let go", "y"),
        (7.5, "gained", "new"),
        (6.0, "gained", "y"),
        (7.0, "gained", "x"),
        (9.0, "let go", "x"),
        (9.25, "gained", "x"),
    ]
    assert gaps_of(stamps) == ([0.5, 2.0, 0.25], 4.25)


def test_gaps_of_zero_are_no_error():
    stamps = [
        (5.0, "gained", "x"),
        (6.0, "let go", "y"),
        (5.0, "let go", "x"),
        (6.5, "gained", "y"),
    ]
    assert gaps_of(stamps) == ([0.0, 0.5], 1.5)


@pytest.mark.parametrize(
    "stamps",
    [
        [(5.0, "let go", "x")],
        [(4.0, "gained", "x"), (5.0, "let go", "x")],
        [(5.0, "let go", "x"), (6.0, "let go", "x"), (7.0, "gained", "x")],
    ],
    ids=["no owner", "gained too early", "two owners"],
)
def test_gaps_of_a_role_without_just_one_owner_fail(stamps):
    with pytest.raises(RuntimeError, match="no owner in the end, or two at once: x"):
        gaps_of(stamps)


def test_critical_path_is_read_backwards_from_the_grant():
    notes = [
        (1.0, "leaver", "step", "Nudged"),
        (2.0, "leaver", "asked", "WriteRecord"),
        (3.0, "leaver", "sent", "txn"),
        (3.5, "new owner", "delivered", ""),
        (4.0, "new owner", "delivered", ""),
        (5.0, "new owner", "step", "Changed"),
        (6.0, "new owner", "carried out", "Grant"),
        (9.0, "new owner", "delivered", ""),
    ]
    assert critical_path(notes, 0.5, 7.0) == [0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]
