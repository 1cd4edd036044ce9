"""make k8s: roll Rink out on real controllers of Kubernetes, and show what each rollout cost.

    make k8s                                  every row
    make k8s ROLLOUTS="--only surge-3,default-4"
    make k8s ROLLOUTS="--json build/k8s.json --markdown build/k8s.md"

The first run builds the control plane with Go; see `kube_build`. Exit status 1: a row misses a
limit. 2: there is no control plane.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

import attrs  # noqa: E402 - what is ours needs the path above
from kube_build import NoControlPlaneError  # noqa: E402
from kube_cluster import running_cluster  # noqa: E402
from lanes import Lanes  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.progress import (  # noqa: E402
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table  # noqa: E402
from scenarios import BY_NAME, Scenario  # noqa: E402
from verdicts import HEADS, Verdict, as_json, cells, markdown  # noqa: E402


def options() -> tuple[argparse.Namespace, list[Scenario]]:
    """Return the options, and the chosen rows with their changes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="ROW,…", help=f"of {', '.join(BY_NAME)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument(
        "--markdown", type=Path, metavar="FILE", help="write the table as docs have it"
    )
    parser.add_argument("--lanes", type=int, default=4, help="so many rows run at a time")
    parser.add_argument(
        "--handover-wait", type=float, metavar="S", help="of every row, to see what they come to"
    )
    chosen = parser.parse_args()
    names = chosen.only.split(",") if chosen.only else list(BY_NAME)
    if unknown := set(names) - set(BY_NAME):
        parser.error(f"no such row: {', '.join(sorted(unknown))} (there are {', '.join(BY_NAME)})")
    rows = [scenario for name, scenario in BY_NAME.items() if name in names]
    if chosen.handover_wait is not None:
        rows = [attrs.evolve(row, handover_wait=chosen.handover_wait) for row in rows]
    return chosen, rows


def carry_out_all(
    rows: list[Scenario], lanes: int, console: Console
) -> tuple[dict[str, Verdict], dict[str, str]]:
    """Return the verdicts by row, and the errors of those that came to none."""
    verdicts: dict[str, Verdict] = {}
    errors: dict[str, str] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Progress(*columns, TimeElapsedColumn(), console=console, refresh_per_second=1) as progress,
        running_cluster(show=progress.console.print) as cluster,
        Lanes(cluster, lanes) as running,
    ):
        task = progress.add_task("rollouts", total=len(rows))
        if cluster.why_no_network:
            progress.console.print(f"pods share the host's network: {cluster.why_no_network}")
        futures = {future: name for name, future in running.submit(rows).items()}
        for future in concurrent.futures.as_completed(futures):
            name = futures[future]
            try:
                verdicts[name] = future.result()
            except Exception as error:  # the other rows go on
                errors[name] = f"{type(error).__name__}: {error}"
                progress.console.print("".join(traceback.format_exception(error)), markup=False)
            outcome = "failed" if name in errors else verdicts[name].outcome
            progress.console.print(f"{name}: {outcome}", markup=False, highlight=False)
            progress.advance(task)
    return verdicts, errors


def show(
    rows: list[Scenario], verdicts: dict[str, Verdict], errors: dict[str, str], console: Console
) -> None:
    """Print the table, and below it what is not as it should be."""
    table = Table(title="30 roles in a rollout, on the controllers of Kubernetes")
    for head, justify in HEADS:
        table.add_column(head, justify=justify, no_wrap=head == "row")
    for row in rows:
        if verdict := verdicts.get(row.name):
            table.add_row(*cells(verdict), style="red" if verdict.misses else None)
        else:
            table.add_row(row.name, row.says, style="red")
    console.print(table)
    for verdict in verdicts.values():
        for miss in verdict.misses[:10]:
            console.print(f"{verdict.scenario.name}: {miss}", style="red", markup=False)
    for name, error in errors.items():
        console.print(f"{name}: {error}", style="red", markup=False)


def main() -> int:
    """Run the chosen rows; return the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen, rows = options()
    console = Console()
    if not console.is_terminal:
        console.width = 200
    began = time.monotonic()
    try:
        verdicts, errors = carry_out_all(rows, chosen.lanes, console)
    except NoControlPlaneError as error:
        console.print(str(error), markup=False)
        return 2
    show(rows, verdicts, errors, console)
    console.print(f"{len(rows)} rows in {(time.monotonic() - began) / 60:.1f} minutes")
    ended = [verdicts[row.name] for row in rows if row.name in verdicts]
    if chosen.json:
        chosen.json.write_text(json.dumps([as_json(verdict) for verdict in ended], indent=1))
    if chosen.markdown:
        chosen.markdown.write_text(markdown(ended))
    return 1 if errors or any(verdict.misses for verdict in ended) else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        print("stopped", flush=True)
        os._exit(130)  # all servers have ended; rows under way would be waited for
