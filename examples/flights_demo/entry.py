"""How a demo is entered: a folder for what it writes, its report for people or as JSON, its exit status."""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

Result = dict[str, Any]


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
