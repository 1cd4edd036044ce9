"""Set the wall clock wrong in one process alone.

With a C compiler, a preloaded library shifts it for the whole process, gRPC's core included.
Otherwise only the clock that rink itself reads is shifted.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime as dt
import shutil
import subprocess
from pathlib import Path

import rink.engine.clock

SOURCE = Path(__file__).with_suffix(".c")


def preload(folder: Path) -> dict[str, str]:
    """Return an environment in which the wall clock can be shifted.

    It is empty if there is no compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return {}
    library = folder / "clock.so"
    command = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return {"LD_PRELOAD": str(library)}


def shift(seconds: int) -> str:
    """Shift this process's wall clock; return the means that was used."""
    with contextlib.suppress(ValueError):
        ctypes.c_long.in_dll(ctypes.CDLL(None), "rink_shift_s").value = seconds
        return "preloaded"
    _Wrong.shift_s = seconds
    rink.engine.clock.datetime = _Wrong
    return "in Python"


class _Wrong(dt.datetime):
    """Stand in for `datetime` where rink reads the wall clock."""

    shift_s = 0

    @classmethod
    def now(cls, tz: dt.tzinfo | None = None) -> dt.datetime:
        return dt.datetime.now(tz) + dt.timedelta(seconds=cls.shift_s)
