"""make bench: every figure beside its limit, measured in the same run, and beside its peers."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from pathlib import Path

import arena
import child
import figures
import machine
from figures import Figure, Outcome
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

PARTS = ["get_role", "handover", "crash", "deploy", "writes", "idle", "scaling", "peers"]
RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> int:
    asked = arguments()
    console = Console()
    if not console.is_terminal:
        console.width = 160
    outcomes = []
    about = {}
    failed = False
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        refresh_per_second=1,  # it runs beside what is measured
    ) as progress:
        for name in asked.only:
            task = progress.add_task(name, total=1)

            def show(text: str, done: int, of: int, name: str = name, task: int = task) -> None:
                progress.update(task, description=f"{name}: {text}", completed=done, total=of)

            # Each part has an etcd of its own: none pays for what another has left behind.
            with arena.etcd(asked.quick, show) as place:
                about = about or machine.describe(place)
                began = time.monotonic()
                try:
                    outcome = importlib.import_module(f"parts.{name}").run(place)
                except Exception:
                    failed = True
                    text = traceback.format_exc()
                    outcome = Outcome(part=name, title=f"{name}: failed", notes=[text])
                    progress.console.print(text)
                finally:
                    child.close_all()
            seconds = round(time.monotonic() - began, 1)
            outcomes.append(figures.attrs.evolve(outcome, seconds=seconds))
            progress.update(task, description=name, completed=1, total=1)
    about["took"] = f"{sum(one.seconds for one in outcomes):.0f} s"
    if asked.quick:
        about["quick"] = "yes: few repetitions, so only a look"
    show_all(console, about, outcomes)
    if asked.json:
        asked.json.write_text(json.dumps(figures.as_json(about, outcomes), indent=1))
    if asked.markdown:
        asked.markdown.write_text(figures.markdown(about, outcomes))
    return 1 if failed else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        type=lambda text: text.split(","),
        default=PARTS,
        metavar="PART,…",
        help=f"of {', '.join(PARTS)}",
    )
    parser.add_argument("--quick", action="store_true", help="few repetitions: a look, no figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything measured")
    parser.add_argument(
        "--markdown",
        type=Path,
        nargs="?",
        const=RESULTS,
        metavar="FILE",
        help=f"write the tables as a page ({RESULTS.name} beside this file, if none is named)",
    )
    asked = parser.parse_args()
    unknown = set(asked.only) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))} (there are {', '.join(PARTS)})")
    return asked


def show_all(console: Console, about: dict[str, str], outcomes: list[Outcome]) -> None:
    for name, value in about.items():
        console.print(f"[bold]{name}[/]: {value}", highlight=False)
    peers = [one for outcome in outcomes for one in outcome.peers]
    for outcome in outcomes:
        console.print()
        heads, rows = figures.rows(outcome, peers)
        if rows:
            console.print(_table(outcome.title, heads, rows, outcome.figures))
        else:
            console.print(f"[bold]{outcome.title}[/]")
        for text in figures.limits(outcome):
            console.print(f"limit: {text}", style="dim", highlight=False)
        for table in outcome.tables:
            console.print(_table(table.title, table.heads, table.rows, []))
        for note in outcome.notes:
            console.print(note, style="dim", highlight=False, markup=False)


def _table(title: str, heads: list[str], rows: list[list[str]], of: list[Figure]) -> Table:
    table = Table(title=title, title_justify="left")
    for index, head in enumerate(heads):
        table.add_column(head, justify="left" if index == 0 else "right")
    for index, row in enumerate(rows):
        is_missed = of and of[index].is_met is False
        table.add_row(*row, style="bold red" if is_missed else None)
    return table


if __name__ == "__main__":
    sys.exit(main())
