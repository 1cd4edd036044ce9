"""Enter a demo: parse its options, run it in a folder, show its report."""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self, TypeVar

from rich.console import Console

from common.flights_file import ALL_YEAR

Result = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """Hold the settings of a demo. Its own class adds more."""

    directory: Path
    seconds: float
    ttl: float
    months: int = ALL_YEAR
    seed: int = 0

    @classmethod
    def of(cls, directory: Path, options: argparse.Namespace) -> Self:
        """Return the settings that the options of the same names give."""
        chosen = vars(options) | {"directory": directory}
        return cls(**{one.name: chosen[one.name] for one in fields(cls) if one.name in chosen})


S = TypeVar("S", bound=Settings)


def parser_of(
    doc: str, *, seconds: float, flow: str, ttl: float, member: str, quick: str, keep: str
) -> argparse.ArgumentParser:
    """Return a parser with the options that every demo has."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=seconds, help=f"how long {flow}")
    parser.add_argument("--months", type=int, default=ALL_YEAR, help="take only the first months")
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--ttl", type=float, default=ttl, help=f"seconds a silent {member}")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--keep", action="store_true", help=f"keep {keep}")
    return parser


def add_seed(parser: argparse.ArgumentParser) -> None:
    """Add the option of demos whose mishaps hit processes at random."""
    parser.add_argument("--seed", type=int, default=0, help="decides whom the mishaps hit")


def parse(
    parser: argparse.ArgumentParser, *, fewest_months: int = 1, **quick: float
) -> argparse.Namespace:
    """Return the options; with --quick, some of them are those of `quick`."""
    options = parser.parse_args()
    if options.quick:
        vars(options).update(quick)
    if not fewest_months <= options.months <= ALL_YEAR:
        parser.error(f"--months must be {fewest_months} to {ALL_YEAR}")
    return options


def present(
    options: argparse.Namespace,
    settings: type[S],
    carry_out: Callable[[S, Console], Result],
    show: Callable[[Result, Console], None],
    *,
    folder: str,
    kept: str,
) -> int:
    """Run a demo and show its report; return the exit status.

    Args:
        options: of `parse`.
        settings: the demo's class of settings.
        carry_out: runs the demo and returns its report.
        show: prints the report for people.
        folder: the prefix of its temporary folder's name.
        kept: names the files there, for --keep.
    """
    # With --json, standard output is the report's alone.
    console = Console(stderr=options.json)
    directory = Path(tempfile.mkdtemp(prefix=folder))
    try:
        result = carry_out(settings.of(directory, options), console)
    except KeyboardInterrupt:
        console.print("Stopped.")
        return 130
    finally:
        if options.keep:
            console.print(f"{kept} kept in {directory}", soft_wrap=True)
        else:
            shutil.rmtree(directory)
    if options.json:
        print(json.dumps(result, indent=2))
    else:
        show(result, console)
    return 0 if result["ok"] else 1
