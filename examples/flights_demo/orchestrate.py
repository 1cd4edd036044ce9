"""The onlooker: starts the processors, replaces, freezes, thaws and kills them, and watches.

It is no member of the group and takes no part in deciding who does what.
"""

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import rink
from flights_demo.data import ALL_YEAR, CHUNK, Job, carrier_role
from flights_demo.display import LiveDisplay, PlainDisplay
from flights_demo.events import Event
from flights_demo.scene import Scene
from flights_demo.stage import PATIENCE, DemoError, Process, Stage
from flights_demo.store import Store

__all__ = ["Demo", "DemoError", "Settings"]

PROCESSORS = 3
COUNT_EVERY = 0.2
COST_OF_A_WRITE = 0.004  # seconds, about; what is left of a chunk's time is slept


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


class Demo(Stage):
    def __init__(
        self,
        settings: Settings,
        endpoint: str,
        jobs: dict[str, Job],
        display: LiveDisplay | PlainDisplay,
    ) -> None:
        scene = Scene(jobs=len(jobs), began=time.monotonic())
        super().__init__(settings.directory, settings.seed, scene, display)
        self.settings = settings
        self.endpoint = endpoint
        self.store = Store(settings.directory / "store.db")
        self.store.create(jobs.values(), self._delivered(1))
        self.carriers = {job.carrier for job in jobs.values()}
        self.counted = 0.0
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
            self.wait_until_gone(old)
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
        self.kill_process(victim)
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
            self.wait_until_gone(process)
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
        return self.launch(
            name,
            ["-m", "flights_demo.processor", *arguments],
            slot=slot,
            generation=generation,
        )

    def freeze_in_mid_work(self, victim: Process) -> Event:
        """Stop the process just between its check of the role and its write; say at what.

        One with the store's lock in hand would stop everybody else too.
        """
        seen = self.scene.members[victim.name]

        def is_right() -> Event | None:
            last = seen.last
            is_between = last.get("what") == "working" and last["first"] > 0
            if not is_between or self.store.is_locked():
                return None
            return last if self.store.position(last["role"]) == last["first"] else None

        return self.freeze_when(victim, is_right, "in the middle of a job")

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

    def look(self) -> None:
        if self.scene.now > self.counted + COUNT_EVERY:
            self.counted = self.scene.now
            self.scene.jobs_done = self.store.done()

    def close(self) -> None:
        super().close()
        self.store.close()
