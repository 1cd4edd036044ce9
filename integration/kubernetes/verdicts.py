"""Judge what came of a row, and show it."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from rollouts import Happened
from scenarios import Limits, Scenario

NOTICED_S = 0.5
"""A gap that a fault leaves is longer than this; those of hand-overs are shorter."""


@attrs.frozen(kw_only=True)
class Verdict:
    """Hold the figures of a row, and which limits it misses.

    Attributes:
        scenario: which row.
        mean: moves per role.
        most: moves of the role that moved most often.
        overlaps: how often two held a role at once, and whatever else Rink forbids.
        gap_p50, gap_p99, gap: seconds in which nobody held a role that had been held.
        settled: seconds from a fault until each role was held; None without a fault.
        start: seconds that the slowest pod took from its creation until it had joined.
        unheld: roles that nobody held in the end.
        changes: how often roles were distributed anew.
        seconds: how long the row took.
        healthy_moves: in a crash loop, how often roles moved away from pods that went on with
            their rank.
        misses: the limits that it misses, in words.
    """

    scenario: Scenario
    mean: float
    most: int
    overlaps: int
    gap_p50: float
    gap_p99: float
    gap: float
    settled: float | None
    start: float
    unheld: int
    changes: int
    seconds: float
    healthy_moves: int | None = None
    misses: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """Return the outcome in a few words."""
        if self.misses:
            return f"misses {len(self.misses)} of its limits"
        return f"{self.mean:.2f} moves per role, at most {self.most}"


HEADS = (
    ("row", "left"),
    ("what", "left"),
    ("pods", "right"),
    ("pod start, s", "right"),
    ("wait, s", "right"),
    ("moves", "right"),
    ("most", "right"),
    ("anew", "right"),
    ("limit", "left"),
    ("overlaps", "right"),
    ("gap p50, ms", "right"),
    ("p99, ms", "right"),
    ("longest, s", "right"),
    ("settled, s", "right"),
    ("seconds", "right"),
)
"""The columns of the table, and to which side they are set."""


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that covers this share of the values.

    It is 0 if there are no values.
    """
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def judged(scenario: Scenario, happened: Happened) -> Verdict:
    """Return the verdict on a row."""
    judgement, began = happened.judgement, happened.began
    moves = judgement.moves(began)
    counts = [moves.get(role, 0) for role in scenario.roles]
    gaps = [gap.seconds for gap in judgement.gaps if gap.end > began]
    struck = happened.struck
    settled = None
    if struck is not None:
        late = (gap.end for gap in judgement.gaps if gap.seconds > NOTICED_S and gap.end > struck)
        settled = max(late, default=struck) - struck
    verdict = Verdict(
        scenario=scenario,
        mean=statistics.fmean(counts),
        most=max(counts),
        overlaps=len(judgement.problems) + len(judgement.early),
        gap_p50=percentile(gaps, 0.5),
        gap_p99=percentile(gaps, 0.99),
        gap=max(gaps, default=0.0),
        settled=settled,
        start=max(happened.starts, default=0.0),
        unheld=len(judgement.not_held(scenario.roles)),
        changes=happened.changes,
        seconds=happened.seconds,
        healthy_moves=happened.healthy_moves,
    )
    misses = missed(scenario.limits, verdict)
    if not scenario.limits.are_overlaps_shown:
        misses = [*judgement.problems, *map(str, judgement.early), *misses]
    return attrs.evolve(verdict, misses=tuple(misses))


def missed(limits: Limits, verdict: Verdict) -> list[str]:
    """Return the limits that a verdict misses, in words."""
    misses = []
    if verdict.unheld:
        misses.append(f"nobody holds {verdict.unheld} roles in the end")
    if limits.mean is not None and verdict.mean != limits.mean:
        misses.append(f"{verdict.mean:.2f} moves per role, not {limits.mean:.2f}")
    longest = None if limits.gap_beyond_start is None else verdict.start + limits.gap_beyond_start
    bounds = (
        ("moves per role", verdict.mean, limits.mean_at_most),
        ("moves of one role", verdict.most, limits.most),
        ("s of 99 % of the gaps", verdict.gap_p99, limits.gap_p99),
        ("s of the longest gap", verdict.gap, limits.gap),
        ("s of the longest gap", verdict.gap, longest),
        ("s until each role was held", verdict.settled, limits.settled),
        ("moves away from pods that kept their rank", verdict.healthy_moves, limits.healthy_moves),
    )
    for what, value, bound in bounds:
        if bound is not None and (value is None or value > bound):
            misses.append(f"{value} {what}, at most {bound:.2f}")
    return misses


def cells(verdict: Verdict) -> list[str]:
    """Return the cells of a row of the table."""
    scenario = verdict.scenario
    return [
        scenario.name,
        scenario.says,
        str(scenario.replicas),
        " to ".join(f"{seconds:g}" for seconds in dict.fromkeys(scenario.pod_start)),
        "" if scenario.is_peer else f"{scenario.handover_wait:g}",
        f"{verdict.mean:.2f}",
        str(verdict.most),
        str(verdict.changes),
        in_words(scenario.limits),
        str(verdict.overlaps),
        f"{1000 * verdict.gap_p50:.0f}",
        f"{1000 * verdict.gap_p99:.0f}",
        f"{verdict.gap:.2f}",
        "" if verdict.settled is None else f"{verdict.settled:.1f}",
        f"{verdict.seconds:.0f}",
    ]


def in_words(limits: Limits) -> str:
    """Return the limits as the table shows them."""
    bounds = (
        ("", limits.mean, ".2f"),
        ("≤ ", limits.mean_at_most, ".2f"),
        ("most ≤ ", limits.most, "d"),
        ("p99 ≤ ", limits.gap_p99, "g"),
        ("gap ≤ ", limits.gap, "g"),
        ("gap ≤ start + ", limits.gap_beyond_start, "g"),
        ("settled ≤ ", limits.settled, "g"),
        ("away from healthy ≤ ", limits.healthy_moves, "d"),
    )
    said = [f"{what}{bound:{how}}" for what, bound, how in bounds if bound is not None]
    return ", ".join(said) or "none"


def as_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON holds it."""
    return attrs.asdict(verdict)


def markdown(verdicts: Sequence[Verdict]) -> str:
    """Return the table as docs have it."""
    marks = [":--" if side == "left" else "--:" for _, side in HEADS]
    lines = [[head for head, _ in HEADS], marks, *map(cells, verdicts)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


PAGE = Path(__file__).parents[2] / "docs" / "internals" / "rollouts.md"
BEGIN = '<!-- rollouts: written by `make k8s ROLLOUTS="--docs"` -->\n'
END = "<!-- /rollouts -->"


def write_page(verdicts: Sequence[Verdict], minutes: float) -> None:
    """Write the table of a run of so many minutes into the page of the docs."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    day = datetime.now(UTC).date()
    told = f"One run of {minutes:.0f} minutes on {os.cpu_count()} cores, {day}."
    text = f"{before}{BEGIN}{told}\n\n{markdown(verdicts)}{END}{after}"
    PAGE.write_text(text, encoding="utf-8")
