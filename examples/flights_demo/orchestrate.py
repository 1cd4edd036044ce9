"""Start the processors; replace, freeze, thaw and kill them.

The onlooker that does so is no member of the group, and takes no part in assigning roles.
"""

import time
from dataclasses import dataclass

from common import entry
from common.display import Display
from common.events import Event
from common.stage import Process, Stage

import rink
from flights_demo.data import CHUNK, Job, carrier_role
from flights_demo.scene import Scene
from flights_demo.store import Store

PROCESSORS = 3
WRITE_S = 0.004  # about, for one chunk; a processor sleeps for the rest of its time


@dataclass(frozen=True)
class Settings(entry.Settings):
    fence: bool = True

    @property
    def rebalance_delay(self) -> float:
        """Return a delay that is longer than a replacement takes."""
        return self.ttl + 1


class Demo(Stage):
    def __init__(
        self, settings: Settings, endpoint: str, jobs: dict[str, Job], display: Display
    ) -> None:
        scene = Scene(jobs=len(jobs), began=time.monotonic())
        super().__init__(settings, scene, display)
        self.settings = settings
        self.endpoint = endpoint
        self.store = Store(settings.directory / "store.db")
        self.store.create(jobs.values(), self._delivered(1))
        self.carriers = {job.carrier for job in jobs.values()}
        self.frozen_slot = 0  # none yet; the kill then hits another slot
        chunks = sum(-(-len(job.delays) // CHUNK) for job in jobs.values())
        self.pace = max(0.002, settings.seconds * PROCESSORS / chunks - WRITE_S)

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
        """Replace every process by a new one, as a surge deploy does.

        The new process is started first.
        """
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
        """Freeze a process between its check and its write; thaw it later.

        Meanwhile its job has moved on, so its write comes too late.
        """
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
        self.thaw_process(victim, f"; {role} is somebody else's by now")
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
            self.step_timeout_s,
        )
        self.stop_all()
        self.scene.jobs_done = self.store.done()

    # The steps of the story.

    def work_until(self, share: float, delivery: int) -> None:
        """Let the processes work until this share of a delivery is done.

        The year arrives in three deliveries. So each mishap finds work to interrupt, however slowly
        this machine starts processes.
        """
        self.store.open(self._delivered(delivery))
        target = self.scene.jobs * (delivery - 1 + share) / PROCESSORS
        self.wait_for(
            lambda: self.scene.jobs_done >= target,
            f"{target:.0f} jobs to be done",
            self.step_timeout_s,
        )

    def _delivered(self, delivery: int) -> int:
        return self.settings.months * delivery // 3

    def start_process(self, slot: int, generation: int) -> Process:
        name = f"p{slot}.{generation}"
        options = {
            "endpoint": self.endpoint,
            "group": self.settings.directory.name,  # new each time, in any etcd
            "name": name,
            "directory": self.settings.directory,
            "ttl": self.settings.ttl,
            "rebalance-delay": self.settings.rebalance_delay,
            "pace": self.pace,
            "months": self.settings.months,
        }
        arguments = [f"--{option}={value}" for option, value in options.items()]
        if not self.settings.fence:
            arguments.append("--no-fence")
        return self.launch(
            name,
            ["-m", "flights_demo.processor", *arguments],
            slot=slot,
            generation=generation,
        )

    def freeze_in_mid_work(self, victim: Process) -> Event:
        """Stop a process between its check of the role and its write.

        Return the event of this work. A process that is frozen with the store's lock in hand would
        stop all others, too.
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
        """Return whether all running processes hold exactly their long-held roles.

        It is not enough that all are ranked: a move that is still under way would count for the
        next mishap.
        """
        ranks = self.scene.ranks
        if sorted(ranks) != sorted(process.name for process in self.slots.values()):
            return False
        owners = {
            carrier: ranks[rink.rank_of(carrier_role(carrier), len(ranks))]
            for carrier in self.carriers
        }
        return all(
            member.carriers == {carrier for carrier in owners if owners[carrier] == member.name}
            for member in self.scene.members.values()
            if not member.is_over
        )

    def look(self) -> None:
        self.scene.jobs_done = self.store.done()

    def close(self) -> None:
        super().close()
        self.store.close()
