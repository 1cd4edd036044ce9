"""Start a process and talk with it: one JSON object a line, each way.

`Child` is the bench's end; `serve` is what the process itself runs.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LONG_S = 120.0
END_S = 5.0
TREE = HERE.parent


def now() -> float:
    """Return the seconds of a clock that all processes of a machine share."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of all threads of a process, from outside."""
    return time.clock_gettime((~pid << 3) | 2)  # as clock_getcpuclockid(3) does


class Child:
    """Run one process, and read its answers on a thread.

    A hung process costs only a timeout. A command that is a str names a file in the `bench/` of
    `tree`.
    """

    def __init__(self, command: list[str] | str, *arguments: str, tree: Path = TREE) -> None:
        bench = tree / HERE.name
        if isinstance(command, str):
            command = [sys.executable, str(bench / command)]
        path = filter(None, [str(tree), str(bench), os.environ.get("PYTHONPATH")])
        self.process = subprocess.Popen(
            [*command, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path)},
            start_new_session=True,  # Ctrl-C is for the bench, which then ends its children
        )
        self._answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        _children.append(self)

    @property
    def pid(self) -> int:
        return self.process.pid

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                self._answers.put(json.loads(line))
            except ValueError:
                print(line, end="", file=sys.stderr)  # a warning of somebody's library
        self._answers.put(None)

    def tell(self, do: str, **more: Any) -> None:
        """Send a command; `answer` returns its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self.process.stdin.flush()

    def answer(self, timeout: float = LONG_S) -> dict[str, Any]:
        try:
            found = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise RuntimeError(f"no answer within {timeout} s: {self.process.args}") from None
        if found is None:
            raise RuntimeError(f"ended with {self.process.wait(5)}: {self.process.args}")
        if "error" in found:
            raise RuntimeError(f"{self.process.args}: {found['error']}")
        return found

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        self.tell(do, **more)
        return self.answer()

    def kill(self) -> float:
        """Send SIGKILL; return the time just after it was sent."""
        self.process.kill()
        at = now()
        self.process.wait()
        return at

    def close(self) -> None:
        """End it: by the end of its input, or by force where it does not end soon."""
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self in _children:
            _children.remove(self)


_children: list[Child] = []


def close_all() -> None:
    """End every process that is still there."""
    for child in _children:
        child.close()


def serve(commands: dict[str, Callable[..., dict[str, Any] | None]]) -> None:
    """Answer commands until the input ends."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_hear, args=(lines,), daemon=True).start()
    while (line := lines.get()) is not None:
        asked = json.loads(line)
        try:
            answer = commands[asked.pop("do")](**asked) or {}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _hear(lines: queue.SimpleQueue[str | None]) -> None:
    for line in sys.stdin:
        lines.put(line)
    lines.put(None)
    # If the starter was killed, no other process kills this one, so it ends itself.
    time.sleep(2 * END_S)
    os._exit(1)
