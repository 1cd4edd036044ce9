"""Start the processes of a demo, strike them, and end them."""

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

from common.display import Display
from common.entry import Settings
from common.events import Event, EventLog, Tail
from common.show import SENDER, Show

EXAMPLES = Path(__file__).resolve().parent.parent
STEP_TIMEOUT_S = 30.0  # of one step, before the demo gives up


class DemoError(Exception):
    """Report that a step of the demo did not end in time."""


@dataclass
class Process:
    name: str
    slot: int
    generation: int
    popen: subprocess.Popen
    may_end_with: int | None = None  # the exit status that the demo has caused, if any


class Stage:
    """Watch the processes of a demo, and act on them for its story."""

    look_interval_s = 0.2

    def __init__(self, settings: Settings, show: Show, display: Display) -> None:
        self.directory = directory = settings.directory
        self.step_timeout_s = STEP_TIMEOUT_S + 2 * settings.seconds  # of steps that do the work
        self.random = random.Random(settings.seed)
        self.scene = show
        self.display = display
        self.events_directory = directory / "events"
        self.events_directory.mkdir()
        self.events = EventLog(self.events_directory, "onlooker")
        self.tail = Tail(self.events_directory)
        self.history: list[Event] = []
        self.processes: dict[str, Process] = {}
        self.slots: dict[int, Process] = {}
        self.looked = 0.0

    def run(self) -> None:
        """Run the story."""
        raise NotImplementedError

    def run_to_the_end(self) -> str:
        """Run the story; return the reason if it could not be finished."""
        try:
            self.run()
        except DemoError as error:
            return str(error)
        return ""

    def launch(
        self,
        name: str,
        arguments: list[str],
        *,
        slot: int = 0,
        generation: int = 1,
        env: Mapping[str, str] | None = None,
    ) -> Process:
        """Start a Python process; in a slot it replaces the slot's last process."""
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

    def start_sender(self, module: str, settings: Settings, env: Mapping[str, str]) -> None:
        """Start the process that sends the flights, which ends by itself."""
        options = [f"--months={settings.months}", f"--seconds={settings.seconds}"]
        self.launch(SENDER, ["-m", module, *options], env=env).may_end_with = 0

    def terminate(self, process: Process) -> None:
        process.may_end_with = 0
        process.popen.terminate()
        self.note("terminated", target=process.name)

    def wait_until_gone(self, process: Process) -> None:
        self.wait_for(lambda: process.popen.poll() is not None, f"{process.name} to leave")
        self.note("gone", target=process.name)

    def stop_all(self) -> None:
        """Ask the processes in all slots to leave, and wait until they have."""
        self.phase("stop")
        for process in self.slots.values():
            self.terminate(process)
        for process in self.slots.values():
            self.wait_until_gone(process)

    def kill_process(self, process: Process) -> None:
        process.may_end_with = -signal.SIGKILL
        process.popen.kill()
        process.popen.wait()
        self.note("killed", target=process.name)

    def freeze_when(
        self, victim: Process, is_right: Callable[[], Event | None], what: str
    ) -> Event:
        """Stop a process at a right moment; return the event of this moment.

        There is no way to aim. So the process is stopped, looked at, and let go on for some
        milliseconds if the moment is a bad one.
        """
        deadline = time.monotonic() + STEP_TIMEOUT_S
        while time.monotonic() < deadline:
            os.kill(victim.popen.pid, signal.SIGSTOP)
            wait_until_stopped(victim.popen.pid)
            self.watch()
            if (event := is_right()) is not None:
                return event
            os.kill(victim.popen.pid, signal.SIGCONT)
            self.pause(self.random.uniform(0.005, 0.03))
        raise DemoError(f"{victim.name} was never seen {what}")

    def thaw_process(self, process: Process, why: str) -> None:
        self.phase("thaw")
        self.note("thawed", target=process.name, why=why)
        os.kill(process.popen.pid, signal.SIGCONT)

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
        self, condition: Callable[[], bool], what: str, timeout_s: float = STEP_TIMEOUT_S
    ) -> None:
        deadline = time.monotonic() + timeout_s
        self.watch()
        while not condition():
            if time.monotonic() > deadline:
                raise DemoError(f"waited {timeout_s:.0f} s in vain for {what}")
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
        """Read new events, apply them, and show the result."""
        for event in self.tail.new():
            self.history.append(event)
            self.scene.apply(event)
        self.scene.now = time.monotonic()
        if self.scene.now >= self.looked + self.look_interval_s:
            self.looked = self.scene.now
            self.look()
        self.display.show(self.scene)

    def look(self) -> None:
        """Read the progress of the work, which the events do not show."""

    def close(self) -> None:
        """Leave no process behind, however the demo ended."""
        for process in self.processes.values():
            with contextlib.suppress(OSError):
                process.popen.kill()  # works on frozen ones too
            process.popen.wait()
            if process.popen.stdin:
                process.popen.stdin.close()
        self.events.close()


def wait_until_stopped(pid: int) -> None:
    """Return once every thread of the child has stopped, or it has ended."""
    deadline = time.monotonic() + STEP_TIMEOUT_S
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.001)
    raise DemoError(f"process {pid} does not stop")
