"""Hold the figures of a run, and show them beside their limits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import cattrs

DISTURBED = 0.05
"""How much of the machine others may use before figures are doubted."""


def percentile(values: Sequence[float], share: float) -> float:
    """Return the percentile of values by nearest rank.

    It is the smallest of the values that at least this share of them does not exceed.
    """
    if not values:
        raise ValueError("no values, no percentile")
    if not 0 <= share <= 1:
        raise ValueError(f"a share lies between 0 and 1, not {share}")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@attrs.frozen
class Spread:
    """Summarize several readings of one figure."""

    count: int
    least: float
    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        return cls(
            len(values),
            min(values),
            percentile(values, 0.5),
            percentile(values, 0.99),
            max(values),
        )


@attrs.frozen
class Target:
    """Hold the bound of a figure; `says` is its text.

    Attributes:
        is_strict: a value that equals the bound does not meet it.
    """

    bound: float
    at_least: bool
    says: str
    is_strict: bool = False

    def is_met(self, value: float) -> bool:
        if self.is_strict and value == self.bound:
            return False
        return value >= self.bound if self.at_least else value <= self.bound


def at_least(bound: float, says: str = "") -> Target:
    return Target(bound, True, says or f"≥ {bound:,.0f}")


def at_most(bound: float, says: str = "") -> Target:
    return Target(bound, False, says or f"≤ {bound:g}")


def below(bound: float, says: str = "") -> Target:
    return Target(bound, False, says or f"< {bound:g}", is_strict=True)


@attrs.frozen(kw_only=True)
class Figure:
    """Hold one measured figure.

    `limit` was measured in the same run, in the same unit: the machine's best possible value.
    `more` holds details that the table has no room for; it goes into the JSON.
    """

    key: str
    what: str
    value: float
    unit: str
    limit: float | None = None
    limit_is: str = ""
    target: Target | None = None
    note: str = ""
    more: dict[str, Any] = attrs.field(factory=dict)

    @property
    def is_met(self) -> bool | None:
        return None if self.target is None else self.target.is_met(self.value)

    @property
    def by_limit(self) -> float | None:
        """Return the multiple of the limit; for a rate, the share of it."""
        return self.value / self.limit if self.limit else None


@attrs.frozen(kw_only=True)
class PeerFigure:
    """Hold a figure of another system.

    `key` is that of our figure that it stands beside.
    """

    peer: str
    key: str
    value: float
    unit: str
    note: str = ""
    more: dict[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Table:
    """Hold a table of a part's own, such as the stages of a hand-over."""

    title: str
    heads: list[str]
    rows: list[list[str]]


@attrs.frozen(kw_only=True)
class Outcome:
    """Hold the result of one part of the bench."""

    part: str
    title: str
    figures: list[Figure] = attrs.field(factory=list)
    peers: list[PeerFigure] = attrs.field(factory=list)
    tables: list[Table] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)
    when: str = ""  # date and commit
    seconds: float = 0.0
    others: float = 0.0  # how much of the machine other processes used meanwhile


def shown(value: float, unit: str) -> str:
    """Return a value for people: about three digits, and its unit."""
    digits = 0 if abs(value) >= 100 or value == int(value) else 1 if abs(value) >= 10 else 2
    if 0 < abs(value) < 0.1:
        digits = 3
    glue = "" if unit.startswith(("/", "%")) or not unit else " "
    return f"{value:,.{digits}f}{glue}{unit}"


def rows(outcome: Outcome, beside: Iterable[PeerFigure]) -> tuple[list[str], list[list[str]]]:
    """Return the figures of one part as text.

    Each peer that has any of them gets a column.
    """
    keys = {figure.key for figure in outcome.figures}
    found = {(one.peer, one.key): one for one in beside if one.key in keys}
    peers = list(dict.fromkeys(peer for peer, _ in found))
    heads = ["figure", "measured", "limit", "x limit", "target", "met", *peers]
    table = []
    for figure in outcome.figures:
        ratio = figure.by_limit
        met = {None: "", True: "yes", False: "NO"}[figure.is_met]
        row = [
            figure.what + (f" ({figure.note})" if figure.note else ""),
            shown(figure.value, figure.unit),
            "" if figure.limit is None else shown(figure.limit, figure.unit),
            "" if ratio is None else f"{ratio:.2f}",
            figure.target.says if figure.target else "",
            met,
        ]
        for peer in peers:
            one = found.get((peer, figure.key))
            said = f" ({one.note})" if one and one.note else ""
            row.append(shown(one.value, one.unit) + said if one else "")
        table.append(row)
    return heads, table


def limits(outcome: Outcome) -> list[str]:
    """Return the descriptions of a part's limits, each once."""
    said = [f"Limit: {one.limit_is}." for one in outcome.figures if one.limit_is]
    return list(dict.fromkeys(said))


def remarks(outcome: Outcome) -> list[str]:
    """Return the lines below a part's tables."""
    said = list(outcome.notes)
    if outcome.when:
        text = f"Measured {outcome.when}, in {outcome.seconds:.0f} s"
        text += f"; other processes used {outcome.others:.0%} of the machine meanwhile"
        is_disturbed = outcome.others >= DISTURBED
        said.append(text + (": alone, times would be shorter." if is_disturbed else "."))
    return said


def markdown(machine: dict[str, str], outcomes: list[Outcome]) -> str:
    """Return the whole run as a page."""
    lines = ["# What `make bench` measured", ""]
    lines += [f"- {name}: {value}" for name, value in machine.items()]
    peers = [one for outcome in outcomes for one in outcome.peers]
    for outcome in outcomes:
        lines += ["", f"## {outcome.title}", ""]
        if outcome.figures:
            lines += _markdown_table(*rows(outcome, peers))
        for text in limits(outcome):
            lines += ["", text]
        for table in outcome.tables:
            lines += ["", f"**{table.title}**", "", *_markdown_table(table.heads, table.rows)]
        for note in remarks(outcome):
            lines += ["", note]
    return "\n".join(lines) + "\n"


def _markdown_table(heads: list[str], table: list[list[str]]) -> list[str]:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    rule = ["---" if index == 0 else "---:" for index in range(len(heads))]
    return [line(heads), line(rule), *map(line, table)]


def as_json(machine: dict[str, str], outcomes: list[Outcome]) -> dict[str, Any]:
    """Return the whole run for programs."""
    parts = []
    for outcome in outcomes:
        part = attrs.asdict(outcome)
        for row, figure in zip(part["figures"], outcome.figures, strict=True):
            row |= {"by_limit": figure.by_limit, "is_met": figure.is_met}
        parts.append(part)
    return {"machine": machine, "parts": parts}


def from_json(saved: dict[str, Any]) -> list[Outcome]:
    """Return the outcomes of a saved run."""
    return [cattrs.structure(part, Outcome) for part in saved["parts"]]
