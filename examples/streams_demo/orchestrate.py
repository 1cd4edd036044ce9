"""Deploy, freeze and kill three workers while a stream flows.

The onlooker that does so is no member of any group, and takes no part in assigning partitions.
"""

import asyncio
import os
import time
from collections import Counter
from dataclasses import dataclass, replace

from common import entry
from common.display import Display
from common.events import Event
from common.show import SENDER
from common.stage import Process
from common.story import Story
from redis import Redis

from rink.core.keys import Keys
from rink.core.view import View
from rink.etcd.client import Client
from rink.inspect.read_group import read_group
from rink.streams import App
from streams_demo.checks import Step
from streams_demo.here import WorkerHere
from streams_demo.ledger import Ledger
from streams_demo.legs import Histories
from streams_demo.outputs import all_steps
from streams_demo.report import Evidence
from streams_demo.scene import Scene

FLOW = {"deploy": (0.4, 0.1), "freeze": (0.75, 0.4), "kill": (0.95, 0.7)}
"""The share that may flow by the end of each mishap, and the share before it begins."""


@dataclass(frozen=True)
class Settings(entry.Settings):
    cluster: bool = False
    careless: bool = False


class Demo(Story):
    share = "share of the partitions"

    def __init__(
        self, settings: Settings, here: WorkerHere, app: App, count: int, display: Display
    ) -> None:
        scene = Scene(legs=count, processors=tuple(sorted(app.processors)), began=time.monotonic())
        super().__init__(settings, scene, display)
        self.settings = settings
        self.here = here
        self.app = app
        self.ledger = Ledger(settings.directory / "ledger.db")
        self.ledger.create()
        self.redis = None if settings.cluster else Redis.from_url(here.redis)
        self.etcd = Client([here.etcd])

    def start(self) -> None:
        self.here.set_limit(0.0)
        self.start_sender("streams_demo.sender", self.settings, self.environment(SENDER))
        super().start()
        self.wait_for(lambda: self.scene.members[SENDER].state == "running", "the sender")
        self.phase("the flights begin")

    def let_work(self, mishap: str) -> None:
        """Let a share flow, mostly during the mishap; wait until a part has."""
        limit, until = FLOW[mishap]
        self.here.set_limit(limit)
        self.wait_for(
            lambda: self.scene.sent >= until * self.scene.legs,
            f"{until:.0%} to be sent",
            self.step_timeout_s,
        )

    def freeze_and_thaw(self, victim: Process) -> None:
        """Freeze a worker in mid-work until others have its partitions."""
        seen = self.scene.members[victim.name]

        def is_right() -> Event | None:
            stopped = time.monotonic()
            has_work = all(seen.is_amid_work(name, stopped) for name in self.scene.processors)
            # With the ledger's lock in hand it would stop all other workers, too.
            return {} if has_work and not self.ledger.is_locked() else None

        self.freeze_when(victim, is_right, "in the middle of its work")
        self.note("frozen", target=victim.name)
        held = {name: dict(has) for name, has in seen.held.items()}
        self.wait_for(lambda: self.have_all_moved(held), "others to have its partitions")
        self.pause(1.0)
        self.thaw_process(victim, "; its partitions are others' by now")
        tested = 0 if self.settings.careless else len(self.scene.processors)
        self.wait_for(lambda: len(seen.refused) >= tested, f"{victim.name}'s belated writes")

    def finish(self) -> None:
        self.here.set_limit(1.0)
        super().finish()

    def is_all_done(self) -> bool:
        return self.scene.all_done

    def start_member(self, slot: int, generation: int) -> Process:
        name = f"w{slot}.{generation}"
        return self.launch(
            name,
            ["-m", "rink.cli", "worker", "streams_demo.app:app", f"--name={name}"],
            slot=slot,
            generation=generation,
            env=self.environment(name),
        )

    def environment(self, name: str) -> dict[str, str]:
        return os.environ | replace(self.here, name=name).variables()

    def groups(self) -> list[View]:
        """Return the groups in etcd, one for each processor."""
        return [
            read_group(self.etcd, Keys.of("rink/", f"flights/{name}"))
            for name in self.scene.processors
        ]

    def has_joined(self, process: Process) -> bool:
        self.pause(0.05)
        return all(process.name in view.members for view in self.groups())

    def is_settled(self) -> bool:
        """Return whether the running workers share all ranks and partitions."""
        return self.is_each_held_once() and all(
            view.version is not None
            and sorted(view.version.ranks)
            == sorted(process.name for process in self.slots.values())
            for view in self.groups()
        )

    def is_each_held_once(self) -> bool:
        running = {one.name for one in self.slots.values()}
        for name in self.scene.processors:
            held = {one.name: one.held[name] for one in self.scene.workers if not one.is_over}
            times = Counter(partition for has in held.values() for partition in has)
            shares = {len(held.get(one, ())) for one in running}
            if set(times.values()) != {1} or len(times) != 16 or shares != {5, 6}:
                return False
        return True

    def have_all_moved(self, held: dict[str, dict[int, int]]) -> bool:
        return all(
            any(one.held[name].get(partition, 0) > token for one in self.scene.workers)
            for name, has in held.items()
            for partition, token in has.items()
        )

    def look(self) -> None:
        self.scene.done["plain"] = self.ledger.written()
        if self.redis:
            states = self.app.streams["states"]
            with self.redis.pipeline(transaction=False) as batch:
                for number in range(states.partition_count):
                    batch.xlen(states.names.partition(number).stream)
                self.scene.done["exact"] = sum(batch.execute())

    def evidence(self, expected: Histories, unfinished: str) -> Evidence:
        """Return the evidence for the report."""
        steps = {"plain": [Step(*row) for row in self.ledger.steps()]}
        if "exact" in self.app.processors:
            steps["exact"] = asyncio.run(all_steps(self.app.streams["states"]))
        return Evidence(
            history=self.history,
            steps=steps,
            again=self.ledger.again(),
            refused=self.ledger.refused(),
            expected=expected,
            partitions=self.app.streams["legs"].partition_count,
            window=self.app.processors["plain"].max_uncommitted,
            unfinished=unfinished,
        )

    def close(self) -> None:
        super().close()
        self.ledger.close()
        self.etcd.close()
        if self.redis:
            self.redis.close()
