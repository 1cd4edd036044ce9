"""Run the `rink` command.

Commands that look at groups only read: they join no group, take no lease and write no key. Only
`forget` deletes keys. Commands of streams need the extra `streams`, and import it when they run.
"""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

from rink.cli.missing_extra import refuse_without_extra


def process_started_at() -> float:
    """Return the time when this process started, by `time.monotonic()`.

    Linux counts it in ticks since the machine started. Other systems use the process's CPU time as
    its age, since a starting process uses its CPU nearly all the time.
    """
    try:
        # The command's name is in brackets and may have any characters, so count from its end. The
        # start is the 20th field after it.
        ticks = int(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        age = time.process_time()
    return time.monotonic() - max(age, 0.0)


def main() -> None:
    """Run the command line: the entry point of `rink`."""
    started_at = process_started_at()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # names are unicode, a terminal may not be
    try:
        from rink.cli.commands import commands, terminal_width
    except ModuleNotFoundError as error:
        refuse_without_extra(error)
        raise
    commands(prog_name="rink", terminal_width=terminal_width(), obj=started_at)
