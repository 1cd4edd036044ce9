"""Show the parts of a report that all demos have."""

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

from common.events import Event

SHOWN = 3  # lines of a kind
Report = dict[str, Any]


def head_of(history: list[Event], faults: dict[str, list[str]]) -> Report:
    """Return a report's head; the history is in the order of time."""
    return {
        "ok": not any(faults.values()),
        "seconds": round(history[-1]["at"] - history[0]["at"], 1),
        "faults": {
            name: {"count": len(found), "first": found[:SHOWN]} for name, found in faults.items()
        },
    }


def show_faults(console: Console, title: str, faults: dict[str, dict]) -> None:
    """Print how many faults of each kind were found, and the first ones."""
    table = numbers_table(title, "must be none", "found", "")
    for name, found in faults.items():
        table.add_row(name, f"{found['count']:,}", mark(not found["count"]))
    console.print()
    console.print(table)
    for name, found in faults.items():
        first_lines(console, name, found["first"], "red")
    console.print()


def show_verdict(console: Console, report: Report, good: str) -> None:
    """Print whether the demo succeeded, and how long it took."""
    verdict = (
        f"[bold green]{good}[/]"
        if report["ok"]
        else "[bold red]NOT as promised; see the lines above.[/]"
    )
    console.print(f"{verdict} {report['seconds']:.0f} s.")


def numbers_table(title: str, first: str, *headings: str) -> Table:
    """Return a table whose columns but the first are numbers."""
    table = Table(title=title)
    table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def results_table(
    title: str, sources: Iterable[str], rows: Iterable[tuple[str, list[int]]]
) -> Table:
    """Return a table of numbers that must be equal in all columns."""
    table = Table(title=title)
    for heading in ("", *sources, "in one plain pass", ""):
        table.add_column(heading, justify="right")
    for name, numbers in rows:
        is_equal = len(set(numbers)) == 1
        table.add_row(name, *(f"{number:,}" for number in numbers), mark(is_equal))
    return table


def first_lines(console: Console, name: str, lines: list[str], style: str) -> None:
    """Print the first lines of a kind, and how many more there are."""
    for line in lines[:SHOWN]:
        console.print(f"  {name}: {line}", style=style, highlight=False, markup=False)
    if len(lines) > SHOWN:
        console.print(f"  … and {len(lines) - SHOWN} more", style=style, highlight=False)


def gap_cells(gap: dict[str, float]) -> list[str]:
    """Return the cells of a `checks.summary`."""
    return [f"{gap['count']:,}", duration(gap["p50_ms"]), duration(gap["max_ms"])]


def duration(ms: float) -> str:
    return f"{ms / 1000:.2f} s" if ms >= 1000 else f"{ms:.1f} ms"


def mark(good: bool) -> str:
    return "[green]✓[/]" if good else "[bold red]✗[/]"
