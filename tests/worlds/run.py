"""Explore the small worlds, the deep ones too (`make worlds`).

Exit status 1: a world breaks a rule (the way there is printed), or was not explored whole.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os

import attrs
from catalogue import BY_DEFAULT, DEEP
from exploring import Result, explore
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from spec import Spec

ALL = {spec.name: spec for spec in (*BY_DEFAULT, *DEEP)}


def go(task: tuple[str, int]) -> Result:
    """Go through one world; what a process of the pool does."""
    name, most = task
    return explore(ALL[name], most)


def through(specs: list[Spec], most: int, processes: int, console: Console) -> list[Result]:
    """Explore worlds, several at a time.

    The largest ones come last in the catalogue.
    """
    results = []
    tasks = [(spec.name, most) for spec in specs]
    with (
        multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool,
        Progress(console=console) as progress,
    ):
        bar = progress.add_task("small worlds", total=len(tasks))
        for result in pool.imap_unordered(go, tasks):
            results.append(result)
            what = "BROKEN" if result.broken else f"{result.states:,} states"
            progress.console.print(f"{result.name}: {what}, {result.seconds:.0f} s")
            progress.advance(bar)
    order = list(ALL)
    return sorted(results, key=lambda result: order.index(result.name))


def show(results: list[Result], console: Console) -> None:
    """Print the table, and the way to whatever is broken."""
    table = Table("world", "what happens", title="Small worlds, every interleaving")
    for head in ("states", "moves", "states of members", "seconds"):
        table.add_column(head, justify="right")
    table.add_column("")
    for one in results:
        verdict = "BROKEN" if one.broken else "whole" if one.is_whole else "cut short"
        figures = (f"{one.states:,}", f"{one.moves:,}", f"{one.steps:,}", f"{one.seconds:.1f}")
        table.add_row(one.name, ALL[one.name].what, *figures, verdict)
    table.add_section()
    states, moves = sum(one.states for one in results), sum(one.moves for one in results)
    table.add_row("together", "", f"{states:,}", f"{moves:,}")
    console.print(table)
    for one in results:
        if one.broken:
            console.print(f"\n{one.name}: {one.broken}", *one.trace, sep="\n  ")


def main() -> int:
    """Go through what was asked for; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only worlds whose name has one of these")
    parser.add_argument("--quick", action="store_true", help="those of the fast tests only")
    parser.add_argument("--most", type=int, default=20_000_000, help="states per world")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true", help="write JSON to standard output")
    asked = parser.parse_args()
    specs = BY_DEFAULT if asked.quick else [*BY_DEFAULT, *DEEP]
    if asked.words:
        specs = [spec for spec in specs if any(word in spec.name for word in asked.words)]
    console = Console(stderr=asked.json)
    results = through(specs, asked.most, asked.processes, console)
    if asked.json:
        print(json.dumps([attrs.asdict(one) for one in results], indent=2))
    else:
        show(results, console)
    return 1 if any(one.broken or not one.is_whole for one in results) else 0


if __name__ == "__main__":
    raise SystemExit(main())
