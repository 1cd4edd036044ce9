"""How a demo is entered: what it is told, a folder for what it writes, its report for people or as JSON."""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from flights_demo.data import ALL_YEAR

Result = dict[str, Any]


def parser_of(doc: str, *, seconds: str, ttl: str, keep: str) -> argparse.ArgumentParser:
    """What every demo is told; `seconds`, `ttl` and `keep` say what that means for this one."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=45, help=seconds)
    parser.add_argument("--months", type=int, default=ALL_YEAR, help="take only the first months")
    parser.add_argument("--quick", action="store_true", help="three months in fifteen seconds")
    parser.add_argument("--ttl", type=float, default=3, help=ttl)
    parser.add_argument("--seed", type=int, default=0, help="decides whom the mishaps hit")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--keep", action="store_true", help=keep)
    return parser


def parse(parser: argparse.ArgumentParser, *, fewest_months: int) -> argparse.Namespace:
    """What this run was told."""
    told = parser.parse_args()
    if told.quick:
        told.seconds, told.months = 15, 3
    if not fewest_months <= told.months <= ALL_YEAR:
        parser.error(f"--months must be {fewest_months} to {ALL_YEAR}")
    return told


def present(
    told: argparse.Namespace,
    carry_out: Callable[[Path, Console], Result],
    show: Callable[[Result, Console], None],
    *,
    folder: str,
    kept: str,
) -> int:
    """Carry a demo out and show what came of it; the exit status.

    `folder` is what its temporary folder's name begins with, `kept` what lies there, for --keep.
    """
    # With --json, standard output is the report's alone.
    console = Console(stderr=told.json)
    directory = Path(tempfile.mkdtemp(prefix=folder))
    try:
        result = carry_out(directory, console)
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130
    finally:
        if told.keep:
            console.print(f"{kept} kept in {directory}", soft_wrap=True)
        else:
            shutil.rmtree(directory)
    if told.json:
        print(json.dumps(result, indent=2))
    else:
        show(result, console)
    return 0 if result["ok"] else 1
