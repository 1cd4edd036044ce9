"""Note what each process did and when, as lines of JSON in its own file.

The clock is CLOCK_MONOTONIC, which all processes of one machine share, so that the lines of
several files can be put in one order afterwards.
"""

import json
import os
import time
from pathlib import Path
from typing import Any

Event = dict[str, Any]  # at, member, what, and the facts of this kind of event


class EventLog:
    """Write events, each by one system call: a SIGKILL leaves no half line."""

    def __init__(self, directory: Path, member: str) -> None:
        self.member = member
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY
        self._file = os.open(directory / f"{member}.jsonl", flags, 0o644)

    def write(self, what: str, **facts: Any) -> None:
        event = {"at": time.monotonic(), "member": self.member, "what": what, **facts}
        os.write(self._file, json.dumps(event).encode() + b"\n")

    def close(self) -> None:
        os.close(self._file)


class Tail:
    """Read the events that were added to a directory since the last call."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._read: dict[Path, int] = {}

    def new(self) -> list[Event]:
        events: list[Event] = []
        for path in sorted(self._directory.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            events += [json.loads(line) for line in whole.splitlines()]
        return sorted(events, key=lambda event: event["at"])
