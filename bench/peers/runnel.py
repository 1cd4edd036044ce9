"""Measure Runnel 0.1.0b1, which stopped in 2020.

It has an environment and processes of its own, on the same Redis.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from arena import Arena
from child import Child

from peers.common import NotToBeHadError

PEER = "Runnel"
PROGRAM = Path(__file__).with_name("runnel_program") / "member.py"
# Its own requirements allow these and later ones; it was seen to work with these.
WANTED = ["runnel==0.1.0b1", "aredis==1.1.8", "anyio==2.2.0", "hiredis==1.1.0", "pydantic==1.10.*"]
TAIL = 0.95
"""The timed share of the sent events. The last batches wait a second each to be filled."""
INSTALL_S = 300
NOTE = (
    "Runnel 0.1.0b1 with its own defaults, but join_delay=0, and for take(100, within=1) "
    "prefetch_count=200; under Python 3.11 with asyncio's `loop=` arguments put back. It sends "
    "1000 records in each call, and acknowledges each event, or batch, by itself."
)


class Peer:
    """Hold Runnel, or the reason why it is missing."""

    def __init__(self, python: Path | None, note: str) -> None:
        self._python = python
        self._apps = itertools.count(1)
        self.note = f"{PEER}: {note}"

    def sent(self, url: str, count: int) -> float:
        with self._child(url) as child:
            return count / child.ask("send", count=count)["seconds"]

    def processed(self, url: str, way: str, count: int) -> float:
        with self._child(url) as child:
            child.ask("send", count=count)
            timed = int(count * TAIL)
            return timed / child.ask("process", way=way, count=timed)["seconds"]

    @contextlib.contextmanager
    def _child(self, url: str) -> Iterator[Child]:
        """Start a fresh process with an unused app."""
        if self._python is None:
            raise NotToBeHadError(self.note)
        given = {"redis": url, "app": f"peer-{next(self._apps)}"}
        child = Child([str(self._python), str(PROGRAM)], json.dumps(given))
        try:
            yield child
        except RuntimeError as error:
            self.note += f" A run of it failed: {error}"
            raise NotToBeHadError(str(error)) from error
        finally:
            child.kill()
            child.close()


@contextlib.contextmanager
def installed(arena: Arena) -> Iterator[Peer]:
    """Install Runnel while the `with` lasts."""
    with tempfile.TemporaryDirectory(prefix="bench-runnel-") as folder:
        arena.progress("Runnel: installing", 0, 1)
        try:
            peer = Peer(install(Path(folder)), NOTE)
        except NotToBeHadError as missing:
            peer = Peer(None, f"skipped: {missing}")
        yield peer


def install(folder: Path) -> Path:
    """Make an environment; its Python.

    Raises:
        NotToBeHadError: no package index, or no compiler for what has no wheel.
    """
    python = folder / "bin" / "python"
    _run(sys.executable, "-m", "venv", str(folder))
    _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *WANTED)
    _run(
        str(python),
        "-c",
        f"import sys; sys.path.insert(0, {str(PROGRAM.parent)!r}); import shim, runnel",
    )
    return python


def _run(*command: str) -> None:
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=INSTALL_S
        )
    except subprocess.TimeoutExpired:
        raise NotToBeHadError(f"its installation took more than {INSTALL_S} s") from None
    if ran.returncode:
        said = " ".join(re.sub(r"https?://\S+", "", ran.stderr).split())[-200:]
        raise NotToBeHadError(f"it cannot be installed: {said}")
