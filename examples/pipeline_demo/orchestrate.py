"""The story: a query on Spark whose driver is killed in the middle of a batch, and the next one frozen in one.

The onlooker that tells it is no member of the group and takes no part in deciding who has the role.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from flights_demo.data import ALL_YEAR
from flights_demo.display import LiveDisplay, PlainDisplay
from flights_demo.stage import EXAMPLES, DemoError, Process, Stage
from redis import Redis

from pipeline_demo import processes
from pipeline_demo.here import ACCEPTED, DRIVER, FOLDER, OF_DRIVER, Here
from pipeline_demo.report import Evidence
from pipeline_demo.scene import SENDER, Driver, Scene
from rink.guards import ParquetGuard
from rink.streams.store.keys import Names

__all__ = ["Demo", "DemoError", "Settings"]

LOOK_EVERY = 0.3
# Seconds that a step may take in which Spark starts, with others at work on this machine.
SLOWLY = 240.0
AFTER_THE_THAW = 3.0
STREAM = Names.of("pipeline", "flights")
GROUP = "spark/delays"


@dataclass(frozen=True)
class Settings:
    directory: Path
    seconds: float = 20.0
    ttl: float = 5.0
    months: int = ALL_YEAR
    batches: int = 16
    master: str = Here.master
    careless: bool = False


class Demo(Stage):
    def __init__(
        self, settings: Settings, here: Here, count: int, display: LiveDisplay | PlainDisplay
    ) -> None:
        scene = Scene(flights=count, began=time.monotonic())
        super().__init__(settings.directory, 0, scene, display)
        self.settings = settings
        self.here = here
        self.redis = Redis.from_url(here.redis, decode_responses=True)
        self.looked = 0.0
        self.commits: dict[int, float] = {}  # by batch: when Spark committed it
        # What is left when we are killed ourselves, frozen ones too, is another's to remove.
        self.keeper = subprocess.Popen(
            [sys.executable, "-m", "pipeline_demo.processes", self.of_the_demo],
            cwd=EXAMPLES,
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    # The story.

    def run(self) -> None:
        self.start()
        self.kill()
        self.freeze_and_thaw()
        self.finish()

    def start(self) -> None:
        self.phase("start")
        self.here.parquet.mkdir()
        self.here.set_limit(0.3)
        self.start_sender()
        for slot in (1, 2):
            self.start_driver(slot, 1)
        self.wait_for(lambda: all(map(self.is_up, self.slots.values())), "two drivers", SLOWLY)
        self.phase("the query begins")
        self.wait_for(lambda: len(self.commits) >= 2, "the first batches", SLOWLY)

    def kill(self) -> None:
        """Kill the one that runs the query, with a batch in Redis that is not in the files yet."""
        self.phase("kill")
        victim = self.hit("before-Parquet")
        processes.kill(self.of_the_demo, self.of(victim))
        self.kill_process(victim)
        self.here.let_go("before-Parquet")
        new = self.start_driver(victim.slot, victim.generation + 1)
        self.wait_for(lambda: self.goes_on_without(victim), "the other driver to go on", SLOWLY)
        self.wait_for(lambda: self.is_up(new), f"{new.name} to be up", SLOWLY)

    def freeze_and_thaw(self) -> None:
        """Stop the one that runs the query, with half of a batch written, until another has gone on."""
        so_far = len(self.commits)
        self.here.set_limit(0.7)
        self.wait_for(lambda: len(self.commits) >= so_far + 1, "more batches", SLOWLY)
        self.phase("freeze")
        victim = self.hit("in-Redis")
        count = sum(processes.freeze(self.of_the_demo, one) for one in self.all_of(victim))
        self.note("frozen", target=victim.name, why=f": all of its {count} processes")
        self.here.let_go("in-Redis")
        self.wait_for(lambda: self.goes_on_without(victim), "the other driver to go on", SLOWLY)
        self.phase("thaw")
        self.note("thawed", target=victim.name, why="; the query is another's by now")
        for one in self.all_of(victim):
            processes.thaw(self.of_the_demo, one)
        if self.settings.careless:
            self.pause(AFTER_THE_THAW)
        else:
            self.wait_for(lambda: self.driver(victim).refused > 0, "its belated writes")
        self.wait_for(lambda: self.driver(victim).token == 0, f"{victim.name} to see its loss")

    def finish(self) -> None:
        self.here.set_limit(1.0)
        self.phase("the rest")
        self.wait_for(self.is_all_done, "the last flight", SLOWLY + 2 * self.settings.seconds)
        self.phase("stop")
        for process in self.slots.values():
            self.terminate(process)
        for process in self.slots.values():
            self.wait_until_gone(process)

    # What it is made of.

    def start_driver(self, slot: int, generation: int) -> Process:
        name = f"d{slot}.{generation}"
        arguments = ["-m", "pipeline_demo.driver"]
        return self.launch(
            name, arguments, slot=slot, generation=generation, env=self.environment(name)
        )

    def start_sender(self) -> None:
        told = {"months": self.settings.months, "seconds": self.settings.seconds}
        arguments = [f"--{option}={value}" for option, value in told.items()]
        sender = self.launch(
            SENDER, ["-m", "pipeline_demo.sender", *arguments], env=self.environment(SENDER)
        )
        sender.may_end_with = 0

    def environment(self, name: str) -> dict[str, str]:
        # Spark's workers run PYSPARK_PYTHON, and import what we import.
        path = os.pathsep.join(filter(None, (str(EXAMPLES), os.environ.get("PYTHONPATH"))))
        for_spark = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
        return os.environ | for_spark | replace(self.here, driver=name).variables()

    @property
    def of_the_demo(self) -> str:
        return f"{FOLDER}={self.here.folder}"

    def of(self, process: Process) -> str:
        return f"{DRIVER}={process.name}"

    def all_of(self, process: Process) -> tuple[str, str]:
        """A driver's own processes, and its executors on a cluster. A kill leaves those: their machine is another."""
        return self.of(process), f"{OF_DRIVER}={process.name}"

    def driver(self, process: Process) -> Driver:
        return self.scene.members[process.name]

    def is_up(self, process: Process) -> bool:
        return self.state(process) == "running"

    def hit(self, where: str) -> Process:
        """Have a batch wait at a place; returns whose it is."""
        self.here.set_limit(self.here.limit + 0.1)  # so that there is a batch
        self.here.hold(where)

        def found() -> list[Process]:
            return [one for one in self.slots.values() if where in self.driver(one).waiting]

        self.wait_for(lambda: bool(found()), "the middle of a batch", SLOWLY)
        return found()[0]

    def goes_on_without(self, victim: Process) -> bool:
        """Whether another has the role, and Spark has committed a batch since."""
        granted = [
            one["at"]
            for one in self.history
            if one["what"] == "granted" and one["token"] == self.scene.greatest
        ]
        return self.scene.holder != victim.name and any(
            at > granted[0] for at in self.commits.values()
        )

    def is_all_done(self) -> bool:
        """Whether Spark has committed what was sent last, as the stream's group tells."""
        return self.scene.sent >= self.scene.flights and all(
            self.redis.hget(one.offsets, GROUP) == self.redis.xrevrange(one.stream, count=1)[0][0]
            for one in map(STREAM.partition, range(8))
        )

    def look(self) -> None:
        if self.scene.now < self.looked + LOOK_EVERY:
            return
        self.looked = self.scene.now
        # A file's time is the time of day, notes have the monotonic one; both are this machine's.
        offset = time.time() - time.monotonic()
        for path in (self.here.checkpoint / "commits").glob("[0-9]*"):
            if path.name.isdigit() and int(path.name) not in self.commits:
                self.commits[int(path.name)] = path.stat().st_mtime - offset
        self.scene.batches = len(self.commits)
        self.scene.counted = self.counted()

    def counted(self) -> int:
        keys = list(self.redis.scan_iter("delays/visibility/*"))
        with self.redis.pipeline(transaction=False) as asked:
            for key in keys:
                asked.hget(key, "flights")
            return sum(map(int, filter(None, asked.execute())))

    # What there is to judge by in the end.

    def evidence(self, expected: pd.DataFrame, unfinished: str) -> Evidence:
        return Evidence(
            history=self.history,
            commits=self.commits,
            accepted=[json.loads(one) for one in self.redis.lrange(ACCEPTED, 0, -1)],
            totals=self.totals(),
            rows=self.rows(),
            expected=expected,
            ttl=self.settings.ttl,
            unfinished=unfinished,
        )

    def totals(self) -> dict[str, tuple[int, ...]]:
        return {
            key.removeprefix("delays/"): tuple(
                int(self.redis.hget(key, name) or 0) for name in ("flights", "cancelled", "delay")
            )
            for key in self.redis.scan_iter("delays/*")
        }

    def rows(self) -> pd.DataFrame:
        with ParquetGuard(self.here.parquet) as files:
            return files.read().to_pandas()

    def close(self) -> None:
        processes.kill(self.of_the_demo)
        super().close()
        self.keeper.communicate()
        self.redis.close()
