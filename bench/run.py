"""Run `make bench`: measure every figure beside its limit and peers.

The limits are measured in the same run.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import arena
import attrs
import child
import figures
import machine
from figures import Figure, Outcome
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

PARTS = [
    "get_role",
    "events",
    "handover",
    "crash",
    "deploy",
    "deploy_threads",
    "writes",
    "idle",
    "scaling",
    "sidecar",
    "peers",
    "streams",
    "streams_handover",
    "spark_source",
    "spark_roles",
]
RESULTS = Path(__file__).with_name("RESULTS.md")


def main() -> int:
    asked = arguments()
    console = Console()
    if not console.is_terminal:
        console.width = 160
    about, outcomes = saved(asked.saved) if asked.saved else measure(asked, console)
    show_all(console, about, outcomes)
    if asked.json:
        asked.json.write_text(json.dumps(figures.as_json(about, outcomes), indent=1))
    if asked.markdown:
        asked.markdown.write_text(figures.markdown(about, outcomes))
    return 0 if all(one.figures for one in outcomes) else 1


def saved(files: list[Path]) -> tuple[dict[str, str], list[Outcome]]:
    """Return the machine and the outcomes of saved runs.

    If several runs have a part, the last one counts.
    """
    found: dict[str, Outcome] = {}
    about: dict[str, str] = {}
    for file in files:
        run = json.loads(file.read_text())
        about |= run["machine"]
        found |= {one.part: one for one in figures.from_json(run)}
    return about, [found[name] for name in PARTS if name in found]


def measure(asked: argparse.Namespace, console: Console) -> tuple[dict[str, str], list[Outcome]]:
    """Run the parts; one that fails is shown as failed, and the others go on."""
    outcomes = []
    about: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    # It is drawn once a second, since it runs beside the measurement.
    with Progress(*columns, TimeElapsedColumn(), console=console, refresh_per_second=1) as progress:
        for name in asked.only:
            task = progress.add_task(name, total=1)

            def show(text: str, done: int, of: int, name: str = name, task: Any = task) -> None:
                progress.update(task, description=f"{name}: {text}", completed=done, total=of)

            when, began, neighbours = machine.when(), time.monotonic(), machine.Neighbours()
            # Each part has an etcd of its own: none pays for what another has left behind.
            with arena.etcd(asked.quick, show) as place:
                about = about or machine.describe(place)
                try:
                    outcome = importlib.import_module(f"parts.{name}").run(place)
                except Exception:
                    text = traceback.format_exc()
                    outcome = Outcome(part=name, title=f"{name}: failed", notes=[text])
                    progress.console.print(text, markup=False)
                finally:
                    child.close_all()
            seconds, others = round(time.monotonic() - began, 1), round(neighbours.share(), 3)
            when += " (quick: a look, no figures)" if asked.quick else ""
            outcome = attrs.evolve(outcome, when=when, seconds=seconds, others=others)
            outcomes.append(outcome)
            progress.update(task, description=name, completed=1, total=1)
    return about, outcomes


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
    parser.add_argument(
        "--from",
        dest="saved",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="measure nothing: show runs that --json has saved",
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
            console.print(text, style="dim", highlight=False)
        for table in outcome.tables:
            console.print(_table(table.title, table.heads, table.rows, []))
        for note in figures.remarks(outcome):
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
