"""Strike programs and sidecars, and judge their writes.

    make sidecar-faults                              300 runs of each fault, 30 of each dear one
    make sidecar-faults FAULTS="--runs 20 --dear 5"
    make sidecar-faults FAULTS="--only 'storm,one name'"
    make sidecar-faults FAULTS="--one '1/storm/17'"  one run again
    make sidecar-faults FAULTS="--json build/sidecar-faults.json --docs"

Exit status 1: a forbidden event happened. Ctrl-C ends it after the present runs, with a table of
the finished runs.
"""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import json
import os
import signal
import sys
import threading
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1]), str(HERE.parents[2])]

from rich.console import Console  # noqa: E402 - what is ours needs the path above
from rich.progress import (  # noqa: E402
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from rink.testing import EtcdNode, local_etcd  # noqa: E402
from safety import page  # noqa: E402
from safety.faults import FAULTS  # noqa: E402
from safety.lanes import Lanes, Run  # noqa: E402
from safety.stage import Verdict  # noqa: E402


def options() -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ", ".join(fault.name for fault in FAULTS)
    parser.add_argument("--only", metavar="FAULT,…", help=f"of {names}")
    parser.add_argument("--runs", type=int, default=300, help="of each fault that is not dear")
    parser.add_argument("--dear", type=int, default=30, help="runs of each dear fault")
    parser.add_argument("--lanes", type=int, default=10, help="so many runs at a time")
    parser.add_argument("--minutes", type=float, default=24 * 60, help="begin no run after so many")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", metavar="SEED/FAULT/NUMBER", help="repeat one run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures")
    parser.add_argument("--docs", action="store_true", help=f"write {page.PAGE.name}")
    chosen = parser.parse_args()
    only = chosen.only.split(",") if chosen.only else [fault.name for fault in FAULTS]
    if unknown := set(only) - {fault.name for fault in FAULTS}:
        parser.error(f"no such fault: {', '.join(sorted(unknown))} (there are {names})")
    chosen.only = only
    return chosen


def runs_of(chosen: argparse.Namespace) -> list[Run]:
    """Return the runs in the order in which they begin: all faults in turn."""
    if chosen.one:
        seed, fault, number = chosen.one.split("/")
        return [Run(fault, int(number), int(seed))]
    each = [
        [
            Run(fault.name, number, chosen.seed)
            for number in range(chosen.dear if fault.is_dear else chosen.runs)
        ]
        for fault in FAULTS
        if fault.name in chosen.only
    ]
    return [run for turn in itertools.zip_longest(*each) for run in turn if run is not None]


def version_of(etcd: EtcdNode) -> str:
    """Return the release of an etcd."""
    with urllib.request.urlopen(f"{etcd.endpoint}/version") as answer:
        return json.load(answer)["etcdserver"]


def main() -> int:
    """Run what was chosen; return the exit status."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    chosen = options()
    runs = runs_of(chosen)
    console = Console()
    if not console.is_terminal:
        console.width = 160
    began, verdicts = time.monotonic(), list[Verdict]()
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, refresh_per_second=1) as progress:
        task = progress.add_task("runs", total=len(runs))

        def done(verdict: Verdict) -> None:
            verdicts.append(verdict)
            for problem in verdict.problems[:3]:
                progress.console.print(f"{verdict.seed}: {problem}", style="red", markup=False)
            progress.advance(task)

        with local_etcd(fsync=False) as etcd:
            version = version_of(etcd)
            lanes = Lanes(etcd, runs, chosen.lanes, done)
            limit = threading.Timer(chosen.minutes * 60, lanes.stop)
            limit.daemon = True
            limit.start()
            troubles = lanes.carry_out()
            limit.cancel()
    rows = [
        page.Row.of(fault.name, fault.says, mine)
        for fault in FAULTS
        if (mine := [verdict for verdict in verdicts if verdict.fault == fault.name])
    ]
    console.print(page.shown(rows))
    for trouble in troubles:
        console.print(trouble, style="red", markup=False)
    minutes = (time.monotonic() - began) / 60
    console.print(f"{len(verdicts)} of {len(runs)} runs, {minutes:.1f} minutes")
    if chosen.json:
        chosen.json.write_text(json.dumps(page.as_json(rows, verdicts, troubles), indent=1))
    if chosen.docs:
        date = dt.datetime.now(tz=dt.UTC).date().isoformat()
        page.PAGE.write_text(page.written(rows, version, minutes, date), encoding="utf-8")
    return 1 if troubles or any(row.problems for row in rows) else 0


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        print("stopped", flush=True)
        os._exit(130)
