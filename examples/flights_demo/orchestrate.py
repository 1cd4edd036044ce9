"""The onlooker: starts the processors, replaces, freezes, thaws and kills them, and watches.

It is no member of the group and takes no part in deciding who does what.
"""

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import rink
from flights_demo.data import ALL_YEAR, CHUNK, Job, carrier_role
from flights_demo.display import LiveDisplay, PlainDisplay
from flights_demo.events import Event, EventLog, Tail
from flights_demo.scene import Scene
from flights_demo.store import Store

EXAMPLES = Path(__file__).resolve().parent.parent
PROCESSORS = 3
PATIENCE = 30.0  # seconds that a step may take before the demo gives up
COUNT_EVERY = 0.2
COST_OF_A_WRITE = 0.004  # seconds, about; what is left of a chunk's time is slept


class DemoError(Exception):
    """A step of the demo did not come about."""


@dataclass(frozen=True)
class Settings:
    directory: Path
    seconds: float = 45.0
    ttl: float = 3.0
    months: int = ALL_YEAR
    seed: int = 0
    fence: bool = True

    @property
    def rebalance_delay(self) -> float:
        """Longer than a process needs from joining until the one it replaces has left."""
        return self.ttl + 1


@dataclass
class Process:
    name: str
    slot: int
    generation: int
    popen: subprocess.Popen
    may_end_with: int | None = None  # the exit status it has been brought to, if it has been


class Demo:
    def __init__(
        self,
        settings: Settings,
        endpoint: str,
        jobs: dict[str, Job],
        display: LiveDisplay | PlainDisplay,
    ) -> None:
        self.settings = settings
        self.endpoint = endpoint
        self.display = display
        self.random = random.Random(settings.seed)
        self.events_directory = settings.directory / "events"
        self.events_directory.mkdir()
        self.store = Store(settings.directory / "store.db")
        self.store.create(jobs.values(), self._delivered(1))
        self.events = EventLog(self.events_directory, "onlooker")
        self.tail = Tail(self.events_directory)
        self.history: list[Event] = []
        self.carriers = {job.carrier for job in jobs.values()}
        self.counted = 0.0
        self.scene = Scene(jobs=len(jobs), began=time.monotonic())
        self.processes: dict[str, Process] = {}
        self.slots: dict[int, Process] = {}
        self.frozen_slot = 0  # none yet; the kill then hits another one
        chunks = sum(-(-len(job.delays) // CHUNK) for job in jobs.values())
        self.pace = max(0.002, settings.seconds * PROCESSORS / chunks - COST_OF_A_WRITE)

    # The story.

    def run(self) -> None:
        self.start()
        self.deploy()
        self.freeze_and_thaw()
        self.kill()
        self.finish()

    def start(self) -> None:
        self.phase("start")
        for slot in range(1, PROCESSORS + 1):
            self.start_process(slot, 1)
        self.wait_for(self.is_settled, "three ranked processors")

    def deploy(self) -> None:
        """Replace every process by a new one that is started first, as a surge deploy does."""
        self.work_until(0.25, delivery=1)
        for slot, old in sorted(self.slots.items()):
            self.phase(f"deploy {slot}/{PROCESSORS}")
            new = self.start_process(slot, old.generation + 1)
            self.wait_for(lambda new=new: self.state(new) == "running", f"{new.name} to join")
            self.terminate(old)
            self.wait_for(lambda old=old: old.popen.poll() is not None, f"{old.name} to leave")
            self.note("gone", target=old.name)
            self.wait_for(self.is_settled, f"{new.name} to take {old.name}'s rank")
            self.pause(0.5)
        self.phase("after the deploy")

    def freeze_and_thaw(self) -> None:
        """Stop one between its check and its write until its job has moved on; then let it write."""
        self.work_until(0.25, delivery=2)
        self.phase("freeze")
        self.frozen_slot = self.random.choice(sorted(self.slots))
        victim = self.slots[self.frozen_slot]
        working = self.freeze_in_mid_work(victim)
        role, token = working["role"], working["token"]
        self.note("frozen", target=victim.name, why=f" in mid-work on {role}, token {token}")
        self.wait_for(
            lambda: self.store.greatest_token(role) > token, f"a new owner to go on with {role}"
        )
        self.pause(1.0)
        self.phase("thaw")
        self.note("thawed", target=victim.name, why=f"; {role} is somebody else's by now")
        os.kill(victim.popen.pid, signal.SIGCONT)
        seen = self.scene.members[victim.name]
        self.wait_for(lambda: seen.last is not working, f"{victim.name}'s belated write")
        self.wait_for(self.is_settled, f"{victim.name} to be ranked again")

    def kill(self) -> None:
        self.work_until(0.25, delivery=3)
        self.phase("kill")
        victim = self.slots[self.random.choice(sorted(self.slots.keys() - {self.frozen_slot}))]
        victim.may_end_with = -signal.SIGKILL
        victim.popen.kill()
        victim.popen.wait()
        self.note("killed", target=victim.name)
        self.start_process(victim.slot, victim.generation + 1)
        self.wait_for(self.is_settled, f"{victim.name}'s rank to be taken")

    def finish(self) -> None:
        self.phase("the rest of the work")
        self.wait_for(
            lambda: self.store.done() == self.scene.jobs,
            "the last job",
            patience=PATIENCE + 2 * self.settings.seconds,
        )
        self.phase("stop")
        for process in self.slots.values():
            self.terminate(process)
        for process in self.slots.values():
            self.wait_for(
                lambda process=process: process.popen.poll() is not None,
                f"{process.name} to leave",
            )
            self.note("gone", target=process.name)
        self.scene.jobs_done = self.store.done()

    # What it is made of.

    def work_until(self, share: float, delivery: int) -> None:
        """Let them work in peace until this share of a delivery is done.

        The year arrives in three deliveries, so that there is work left for each mishap to
        interrupt, however slow this machine is at starting processes.
        """
        self.store.open(self._delivered(delivery))
        target = self.scene.jobs * (delivery - 1 + share) / PROCESSORS
        self.wait_for(
            lambda: self.scene.jobs_done >= target,
            f"{target:.0f} jobs to be done",
            patience=PATIENCE + 2 * self.settings.seconds,
        )

    def _delivered(self, delivery: int) -> int:
        return self.settings.months * delivery // 3

    def start_process(self, slot: int, generation: int) -> Process:
        name = f"p{slot}.{generation}"
        told = {
            "endpoint": self.endpoint,
            "group": self.settings.directory.name,  # another one each time, whatever the etcd
            "name": name,
            "directory": self.settings.directory,
            "ttl": self.settings.ttl,
            "rebalance-delay": self.settings.rebalance_delay,
            "pace": self.pace,
            "months": self.settings.months,
        }
        arguments = [f"--{option}={value}" for option, value in told.items()]
        if not self.settings.fence:
            arguments.append("--no-fence")
        with (self.settings.directory / f"{name}.err").open("wb") as errors:
            popen = subprocess.Popen(
                [sys.executable, "-m", "flights_demo.processor", *arguments],
                cwd=EXAMPLES,
                stdin=subprocess.PIPE,  # its end tells the process that the demo is gone
                stdout=errors,
                stderr=errors,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops them all
            )
        process = Process(name, slot, generation, popen)
        self.processes[name] = self.slots[slot] = process
        self.note("started", target=name, pid=popen.pid, generation=generation)
        return process

    def terminate(self, process: Process) -> None:
        process.may_end_with = 0
        process.popen.terminate()
        self.note("terminated", target=process.name)

    def freeze_in_mid_work(self, victim: Process) -> Event:
        """Stop the process just between its check of the role and its write; say at what.

        There is no way to aim: stop it, look, and let it go on for some milliseconds if the
        moment is a bad one. One with the store's lock in hand would stop everybody else too.
        """
        seen = self.scene.members[victim.name]
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            os.kill(victim.popen.pid, signal.SIGSTOP)
            wait_until_stopped(victim.popen.pid)
            self.watch()
            last = seen.last
            is_between = last.get("what") == "working" and last["first"] > 0
            if (
                is_between
                and not self.store.is_locked()
                and self.store.position(last["role"]) == last["first"]
            ):
                return last
            os.kill(victim.popen.pid, signal.SIGCONT)
            self.pause(self.random.uniform(0.005, 0.03))
        raise DemoError(f"{victim.name} was never seen in the middle of a job")

    def is_settled(self) -> bool:
        """Whether those that run are ranked and hold the long-held roles of their ranks: no more.

        That all are ranked is not enough: a move that is still under way would count for what
        comes next.
        """
        ranks = self.scene.ranks
        if sorted(ranks) != sorted(one.name for one in self.slots.values()):
            return False
        owners = {one: ranks[rink.rank_of(carrier_role(one), len(ranks))] for one in self.carriers}
        return all(
            member.carriers == {carrier for carrier in owners if owners[carrier] == member.name}
            for member in self.scene.members.values()
            if not member.is_over
        )

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
                errors = (self.settings.directory / f"{process.name}.err").read_text()
                raise DemoError(f"{process.name} ended by itself ({status}):\n{errors[-2000:]}")

    def watch(self) -> None:
        """Take in what has happened, and show it."""
        for event in self.tail.new():
            self.history.append(event)
            self.scene.apply(event)
        self.scene.now = time.monotonic()
        if self.scene.now > self.counted + COUNT_EVERY:
            self.counted = self.scene.now
            self.scene.jobs_done = self.store.done()
        self.display.show(self.scene)

    def close(self) -> None:
        """Leave no process behind, however the demo ended."""
        for process in self.processes.values():
            with contextlib.suppress(OSError):
                process.popen.kill()  # works on frozen ones too; those that left are not met
            process.popen.wait()
            if process.popen.stdin:
                process.popen.stdin.close()
        self.events.close()
        self.store.close()


def wait_until_stopped(pid: int) -> None:
    """Return once every thread of the child has stopped, or it has ended."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return
        time.sleep(0.001)
    raise DemoError(f"process {pid} does not stop")
