"""Start the processors; replace, freeze, thaw and kill them.

The onlooker that does so is no member of the group, and takes no part in assigning roles.
"""

import time
from dataclasses import dataclass

from common import entry
from common.display import Display
from common.events import Event
from common.stage import Process
from common.story import MEMBERS, Story

import rink
from flights_demo.data import CHUNK, Job, carrier_role
from flights_demo.scene import Scene
from flights_demo.store import Store

DELIVERIES = {"deploy": 1, "freeze": 2, "kill": 3}
WRITE_S = 0.004  # about, for one chunk; a processor sleeps for the rest of its time


@dataclass(frozen=True)
class Settings(entry.Settings):
    fence: bool = True

    @property
    def rebalance_delay(self) -> float:
        """Return a delay that is longer than a replacement takes."""
        return self.ttl + 1


class Demo(Story):
    share = "rank"

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
        chunks = sum(-(-len(job.delays) // CHUNK) for job in jobs.values())
        self.pace = max(0.002, settings.seconds * MEMBERS / chunks - WRITE_S)

    def let_work(self, mishap: str) -> None:
        """Let the processors work until a quarter of a delivery is done.

        The year arrives in three deliveries. So each mishap finds work to interrupt, however slowly
        this machine starts processes.
        """
        delivery = DELIVERIES[mishap]
        self.store.open(self._delivered(delivery))
        target = self.scene.jobs * (delivery - 1 + 0.25) / len(DELIVERIES)
        self.wait_for(
            lambda: self.scene.jobs_done >= target,
            f"{target:.0f} jobs to be done",
            self.step_timeout_s,
        )

    def freeze_and_thaw(self, victim: Process) -> None:
        """Freeze a processor between its check and its write, until its job moved."""
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

    def _delivered(self, delivery: int) -> int:
        return self.settings.months * delivery // 3

    def start_member(self, slot: int, generation: int) -> Process:
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

    def is_all_done(self) -> bool:
        return self.store.done() == self.scene.jobs

    def is_settled(self) -> bool:
        """Return whether all processors hold exactly their long-held roles.

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
