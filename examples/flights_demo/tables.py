"""What the reports of all demos show in the same way."""

from rich.console import Console
from rich.table import Table

SHOWN = 3  # lines of a kind


def told(faults: dict[str, list[str]]) -> dict[str, dict]:
    """Faults as a report has them: how many of each kind, and the first ones."""
    return {name: {"count": len(found), "first": found[:SHOWN]} for name, found in faults.items()}


def faults_table(title: str, faults: dict[str, dict]) -> Table:
    table = Table(title=title)
    table.add_column("must be none")
    table.add_column("found", justify="right")
    table.add_column("")
    for name, found in faults.items():
        table.add_row(name, f"{found['count']:,}", mark(not found["count"]))
    return table


def first_lines(console: Console, name: str, lines: list[str], style: str) -> None:
    for line in lines[:SHOWN]:
        console.print(f"  {name}: {line}", style=style, highlight=False, markup=False)
    if len(lines) > SHOWN:
        console.print(f"  … and {len(lines) - SHOWN} more", style=style, highlight=False)


def duration(ms: float) -> str:
    return f"{ms / 1000:.2f} s" if ms >= 1000 else f"{ms:.1f} ms"


def mark(good: bool) -> str:
    return "[green]✓[/]" if good else "[bold red]✗[/]"
