"""What any demo does: start processes, hit them, wait for what they write down, leave none behind."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flights_demo.display import LiveDisplay, PlainDisplay
from flights_demo.events import Event, EventLog, Tail
from flights_demo.show import Show

EXAMPLES = Path(__file__).resolve().parent.parent
PATIENCE = 30.0  # seconds that a step may take before the demo gives up


class DemoError(Exception):
    """A step of the demo did not come about."""


@dataclass
class Process:
    name: str
    slot: int
    generation: int
    popen: subprocess.Popen
    may_end_with: int | None = None  # the exit status it has been brought to, if it has been


class Stage:
    """The onlooker's hands and eyes; the story is told by who derives from this."""

    def __init__(
        self, directory: Path, seed: int, show: Show, display: LiveDisplay | PlainDisplay
    ) -> None:
        self.directory = directory
        self.random = random.Random(seed)
        self.scene = show
        self.display = display
        self.events_directory = directory / "events"
        self.events_directory.mkdir()
        self.events = EventLog(self.events_directory, "onlooker")
        self.tail = Tail(self.events_directory)
        self.history: list[Event] = []
        self.processes: dict[str, Process] = {}
        self.slots: dict[int, Process] = {}

    def launch(
        self,
        name: str,
        arguments: list[str],
        *,
        slot: int = 0,
        generation: int = 1,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a Python process; one with a slot takes the place of whoever had that slot."""
        with (self.directory / f"{name}.err").open("wb") as errors:
            popen = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=EXAMPLES,
                env=env,
                stdin=subprocess.PIPE,  # its end tells the process that the demo is gone
                stdout=errors,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops them all
            )
        process = Process(name, slot, generation, popen)
        self.processes[name] = process
        if slot:
            self.slots[slot] = process
        self.note("started", target=name, pid=popen.pid, generation=generation)
        return process

    def terminate(self, process: Process) -> None:
        process.may_end_with = 0
        process.popen.terminate()
        self.note("terminated", target=process.name)

    def wait_until_gone(self, process: Process) -> None:
        self.wait_for(lambda: process.popen.poll() is not None, f"{process.name} to leave")
        self.note("gone", target=process.name)

    def kill_process(self, process: Process) -> None:
        process.may_end_with = -signal.SIGKILL
        process.popen.kill()
        process.popen.wait()
        self.note("killed", target=process.name)

    def freeze_when(
        self, victim: Process, is_right: Callable[[], Event | None], what: str
    ) -> Event:
        """Stop a process at a moment that is right; say at what.

        There is no way to aim: stop it, look, and let it go on for some milliseconds if the
        moment is a bad one.
        """
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            os.kill(victim.popen.pid, signal.SIGSTOP)
            wait_until_stopped(victim.popen.pid)
            self.watch()
            if (found := is_right()) is not None:
                return found
            os.kill(victim.popen.pid, signal.SIGCONT)
            self.pause(self.random.uniform(0.005, 0.03))
        raise DemoError(f"{victim.name} was never seen {what}")

    def state(self, process: Process) -> str:
        return self.scene.members[process.name].state

    def phase(self, name: str) -> None:
        self.note("phase", name=name)

    def note(self, what: str, **facts: object) -> None:
        self.events.write(what, **facts)
        self.watch()

    def pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.watch()
            time.sleep(0.01)

    def wait_for(
        self, condition: Callable[[], bool], what: str, patience: float = PATIENCE
    ) -> None:
        deadline = time.monotonic() + patience
        self.watch()
        while not condition():
            if time.monotonic() > deadline:
                raise DemoError(f"waited {patience:.0f} s in vain for {what}")
            self.check_that_all_live()
            time.sleep(0.02)
            self.watch()

    def check_that_all_live(self) -> None:
        for process in self.processes.values():
            status = process.popen.poll()
            if status is not None and status != process.may_end_with:
                errors = (self.directory / f"{process.name}.err").read_text()
                raise DemoError(f"{process.name} ended by itself ({status}):\n{errors[-2000:]}")

    def watch(self) -> None:
        """Take in what has happened, and show it."""
        for event in self.tail.new():
            self.history.append(event)
            self.scene.apply(event)
        self.scene.now = time.monotonic()
        self.look()
        self.display.show(self.scene)

    def look(self) -> None:
        """See how far the work has come, which the events do not tell."""

    def close(self) -> None:
        """Leave no process behind, however the demo ended."""
        for process in self.processes.values():
            with contextlib.suppress(OSError):
                process.popen.kill()  # works on frozen ones too; those that left are not met
            process.popen.wait()
            if process.popen.stdin:
                process.popen.stdin.close()
        self.events.close()


def wait_until_stopped(pid: int) -> None:
    """Return once every thread of the child has stopped, or it has ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.001)
    raise DemoError(f"process {pid} does not stop")
