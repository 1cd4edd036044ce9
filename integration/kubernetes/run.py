"""Roll Rink out on real controllers of Kubernetes (`make k8s`).

It shows the cost of each rollout.

    make k8s                                  every row, and the parts below the table
    make k8s ROLLOUTS="--only surge-3,default-4,dry-run"
    make k8s ROLLOUTS="--json build/k8s.json"
    make k8s ROLLOUTS="--docs"                every row, into docs/internals/rollouts.md

The first run builds the control plane with Go; see `kube_build`. Exit status 1: a row misses a
limit, or a part is not as it should be. 2: there is no control plane.

The parts: `dry-run` asks the apiserver for each manifest of deploy/ and examples/kubernetes/.
`flights` rolls the example of the flights once, amid its work, and judges totals and moves.
`label` hands a role over between two sidecars ten times, and measures the label of their pods.
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

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(Path(__file__).parent), str(ROOT / "integration")]
sys.path += [str(ROOT / name) for name in ("tests/deploy", "examples", "examples/kubernetes")]
sys.path.append(str(ROOT / "integration" / "sidecar"))

import attrs  # noqa: E402 - what is ours needs the path above
import dry_run  # noqa: E402
import flights_roll  # noqa: E402
import label_part  # noqa: E402
from kube_build import NoControlPlaneError  # noqa: E402
from kube_cluster import running_cluster  # noqa: E402
from kube_parts import PartVerdict  # noqa: E402
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
from verdicts import HEADS, Verdict, as_json, cells, write_page  # noqa: E402

PARTS = {part.NAME: part.carry_out for part in (dry_run, flights_roll, label_part)}
"""The parts below the table. Each runs alone after the rows, so that it disturbs no row."""


def options() -> tuple[argparse.Namespace, list[Scenario], list[str]]:
    """Return the options, the chosen rows, and the names of chosen parts.

    The rows have the changes that the options ask for.
    """
    known = [*BY_NAME, *PARTS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", metavar="ROW,…", help=f"of {', '.join(known)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--docs", action="store_true", help="write the table into its page")
    parser.add_argument("--lanes", type=int, default=4, help="so many rows run at a time")
    parser.add_argument(
        "--handover-wait", type=float, metavar="S", help="of every row, to see what they come to"
    )
    chosen = parser.parse_args()
    names = chosen.only.split(",") if chosen.only else known
    if unknown := set(names) - set(known):
        parser.error(f"no such row: {', '.join(sorted(unknown))} (there are {', '.join(known)})")
    rows = [scenario for name, scenario in BY_NAME.items() if name in names]
    if chosen.handover_wait is not None:
        rows = [attrs.evolve(row, handover_wait=chosen.handover_wait) for row in rows]
    return chosen, rows, [name for name in PARTS if name in names]


@attrs.frozen
class Outcome:
    """Hold what came of the run.

    Attributes:
        verdicts: by row.
        parts: the verdicts on the parts, by name.
        errors: what ended a row or a part that has no verdict, by name.
    """

    verdicts: dict[str, Verdict] = attrs.field(factory=dict)
    parts: dict[str, PartVerdict] = attrs.field(factory=dict)
    errors: dict[str, str] = attrs.field(factory=dict)

    @property
    def is_good(self) -> bool:
        """Return whether no row and no part failed."""
        verdicts = (*self.verdicts.values(), *self.parts.values())
        return not self.errors and not any(verdict.misses for verdict in verdicts)

    def failed(self, name: str, error: Exception) -> str:
        """Note that a row or a part failed, and return its traceback."""
        self.errors[name] = f"{type(error).__name__}: {error}"
        return "".join(traceback.format_exception(error))


def carry_out_all(rows: list[Scenario], parts: list[str], lanes: int, console: Console) -> Outcome:
    """Carry out the rows, several at a time, then the parts one by one."""
    outcome = Outcome()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with (
        Progress(*columns, TimeElapsedColumn(), console=console, refresh_per_second=1) as progress,
        running_cluster(show=progress.console.print) as cluster,
        Lanes(cluster, lanes) as running,
    ):
        task = progress.add_task("rollouts", total=len(rows) + len(parts))
        if cluster.why_no_network:
            progress.console.print(f"pods share the host's network: {cluster.why_no_network}")
        futures = {future: name for name, future in running.submit(rows).items()}
        for future in concurrent.futures.as_completed(futures):
            name = futures[future]
            try:
                outcome.verdicts[name] = future.result()
                says = outcome.verdicts[name].outcome
            except Exception as error:  # the other rows go on
                progress.console.print(outcome.failed(name, error), markup=False)
                says = "failed"
            progress.console.print(f"{name}: {says}", markup=False, highlight=False)
            progress.advance(task)
        for name in parts:
            try:
                outcome.parts[name] = running.submit_part(PARTS[name]).result()
            except Exception as error:  # the other parts go on
                progress.console.print(outcome.failed(name, error), markup=False)
            progress.advance(task)
    return outcome


def show(rows: list[Scenario], outcome: Outcome, console: Console) -> None:
    """Print the table, then the parts and all failures."""
    if rows:
        console.print(table_of(rows, outcome.verdicts))
    for part in outcome.parts.values():
        style = "red" if part.misses else None
        said = f"{part.name}: {part.says} ({part.seconds:.0f} s)"
        console.print(said, style=style, markup=False, highlight=False)
    named = {name: verdict.misses for name, verdict in outcome.verdicts.items()}
    named |= {name: part.misses for name, part in outcome.parts.items()}
    for name, misses in named.items():
        for miss in misses[:10]:
            console.print(f"{name}: {miss}", style="red", markup=False)
    for name, error in outcome.errors.items():
        console.print(f"{name}: {error}", style="red", markup=False)


def table_of(rows: list[Scenario], verdicts: dict[str, Verdict]) -> Table:
    """Return the table, with failed rows in red.

    A row also fails if it misses a limit.
    """
    table = Table(title="30 roles in a rollout, on the controllers of Kubernetes")
    for head, justify in HEADS:
        table.add_column(head, justify=justify, no_wrap=head == "row")
    for row in rows:
        if verdict := verdicts.get(row.name):
            table.add_row(*cells(verdict), style="red" if verdict.misses else None)
        else:
            table.add_row(row.name, row.says, style="red")
    return table


def main() -> int:
    """Run the chosen rows and parts; return the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen, rows, parts = options()
    console = Console()
    if not console.is_terminal:
        console.width = 200
    began = time.monotonic()
    try:
        outcome = carry_out_all(rows, parts, chosen.lanes, console)
    except NoControlPlaneError as error:
        console.print(str(error), markup=False)
        return 2
    show(rows, outcome, console)
    minutes = (time.monotonic() - began) / 60
    console.print(f"rows: {len(rows)}, parts: {len(parts)}, minutes: {minutes:.1f}")
    ended = [outcome.verdicts[row.name] for row in rows if row.name in outcome.verdicts]
    if chosen.json:
        whole = {
            "rows": [as_json(verdict) for verdict in ended],
            "parts": [attrs.asdict(part) for part in outcome.parts.values()],
            "errors": outcome.errors,
        }
        chosen.json.write_text(json.dumps(whole, indent=1))
    if chosen.docs:
        write_page(ended, minutes)
    return 0 if outcome.is_good else 1


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        print("stopped", flush=True)
        os._exit(130)  # all servers have ended; rows under way would be waited for
