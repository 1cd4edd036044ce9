"""Kill the driver of a query in mid-batch, and freeze the next one.

The onlooker that does so is no member of the group, and takes no part in assigning the role.
"""

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from common import entry
from common.display import Display
from common.show import SENDER
from common.stage import EXAMPLES, Process, Stage
from redis import Redis

from pipeline_demo import processes
from pipeline_demo.here import ACCEPTED, DRIVER, FOLDER, OF_DRIVER, DriverHere
from pipeline_demo.report import Evidence
from pipeline_demo.scene import Driver, Scene
from rink.guards import ParquetGuard
from rink.streams.store.keys import Names

SPARK_TIMEOUT_S = 240.0  # of a step in which Spark starts, on a busy machine
AFTER_THE_THAW_S = 3.0
STREAM = Names.of("pipeline", "flights")
GROUP = "spark/delays"


@dataclass(frozen=True)
class Settings(entry.Settings):
    batches: int = 16
    master: str = DriverHere.master
    careless: bool = False
    report: Path | None = None
    keep: bool = False

    @property
    def page_path(self) -> Path | None:
        return self.report or (self.directory / "report.html" if self.keep else None)


class Demo(Stage):
    look_interval_s = 0.3

    def __init__(self, settings: Settings, here: DriverHere, count: int, display: Display) -> None:
        scene = Scene(flights=count, began=time.monotonic())
        super().__init__(settings, scene, display)
        self.settings = settings
        self.here = here
        self.redis = Redis.from_url(here.redis, decode_responses=True)
        self.commits: dict[int, float] = {}  # by batch: when Spark committed it
        # If this process is killed, the keeper kills the drivers, frozen ones too.
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
        self.start_sender("pipeline_demo.sender", self.settings, self.environment(SENDER))
        for slot in (1, 2):
            self.start_driver(slot, 1)
        self.wait_for(
            lambda: all(map(self.is_up, self.slots.values())), "two drivers", SPARK_TIMEOUT_S
        )
        self.phase("the query begins")
        self.wait_for(lambda: len(self.commits) >= 2, "the first batches", SPARK_TIMEOUT_S)

    def kill(self) -> None:
        """Kill the driver amid a batch that is in Redis, but not in the files."""
        self.phase("kill")
        victim = self.hit("before-Parquet")
        processes.kill(self.of_the_demo, self.of(victim))
        self.kill_process(victim)
        self.here.let_go("before-Parquet")
        new = self.start_driver(victim.slot, victim.generation + 1)
        self.wait_for(
            lambda: self.goes_on_without(victim), "the other driver to go on", SPARK_TIMEOUT_S
        )
        self.wait_for(lambda: self.is_up(new), f"{new.name} to be up", SPARK_TIMEOUT_S)

    def freeze_and_thaw(self) -> None:
        """Freeze the driver amid a batch until the other has gone on."""
        so_far = len(self.commits)
        self.here.set_limit(0.7)
        self.wait_for(lambda: len(self.commits) >= so_far + 1, "more batches", SPARK_TIMEOUT_S)
        self.phase("freeze")
        victim = self.hit("in-Redis")
        count = sum(processes.freeze(self.of_the_demo, mark) for mark in self.all_of(victim))
        self.note("frozen", target=victim.name, why=f": all of its {count} processes")
        self.here.let_go("in-Redis")
        self.wait_for(
            lambda: self.goes_on_without(victim), "the other driver to go on", SPARK_TIMEOUT_S
        )
        self.phase("thaw")
        self.note("thawed", target=victim.name, why="; the query is another's by now")
        for mark in self.all_of(victim):
            processes.thaw(self.of_the_demo, mark)
        if self.settings.careless:
            self.pause(AFTER_THE_THAW_S)
        else:
            self.wait_for(lambda: self.driver(victim).refused > 0, "its belated writes")
        self.wait_for(lambda: self.driver(victim).token == 0, f"{victim.name} to see its loss")

    def finish(self) -> None:
        self.here.set_limit(1.0)
        self.phase("the rest")
        timeout_s = SPARK_TIMEOUT_S + 2 * self.settings.seconds
        self.wait_for(self.is_all_done, "the last flight", timeout_s)
        self.stop_all()

    # The steps of the story.

    def start_driver(self, slot: int, generation: int) -> Process:
        name = f"d{slot}.{generation}"
        arguments = ["-m", "pipeline_demo.driver"]
        return self.launch(
            name, arguments, slot=slot, generation=generation, env=self.environment(name)
        )

    def environment(self, name: str) -> dict[str, str]:
        # Spark's workers run PYSPARK_PYTHON, and import the demo's modules.
        path = os.pathsep.join(filter(None, (str(EXAMPLES), os.environ.get("PYTHONPATH"))))
        for_spark = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": path}
        return os.environ | for_spark | replace(self.here, name=name).variables()

    @property
    def of_the_demo(self) -> str:
        return f"{FOLDER}={self.here.folder}"

    def of(self, process: Process) -> str:
        return f"{DRIVER}={process.name}"

    def all_of(self, process: Process) -> tuple[str, str]:
        """Return the marks of a driver's processes, and of those on a cluster."""
        return self.of(process), f"{OF_DRIVER}={process.name}"

    def driver(self, process: Process) -> Driver:
        return self.scene.members[process.name]

    def is_up(self, process: Process) -> bool:
        return self.state(process) == "running"

    def hit(self, where: str) -> Process:
        """Let a batch wait at a place; return its driver's process."""
        self.here.set_limit(self.here.limit + 0.1)  # so that there is a batch
        self.here.hold(where)

        def waiting() -> list[Process]:
            return [one for one in self.slots.values() if where in self.driver(one).waiting]

        self.wait_for(lambda: bool(waiting()), "the middle of a batch", SPARK_TIMEOUT_S)
        return waiting()[0]

    def goes_on_without(self, victim: Process) -> bool:
        """Return whether another driver has committed a batch since its grant."""
        granted = [
            event["at"]
            for event in self.history
            if event["what"] == "granted" and event["token"] == self.scene.greatest
        ]
        return self.scene.holder != victim.name and any(
            at > granted[0] for at in self.commits.values()
        )

    def is_all_done(self) -> bool:
        """Return whether Spark has committed the last flight of each partition."""
        return self.scene.sent >= self.scene.flights and all(
            self.redis.hget(one.offsets, GROUP) == self.redis.xrevrange(one.stream, count=1)[0][0]
            for one in map(STREAM.partition, range(8))
        )

    def look(self) -> None:
        # Files have the time of day, and notes the monotonic time. Both are this machine's.
        offset = time.time() - time.monotonic()
        for path in (self.here.checkpoint / "commits").glob("[0-9]*"):
            if path.name.isdigit() and int(path.name) not in self.commits:
                self.commits[int(path.name)] = path.stat().st_mtime - offset
        self.scene.batches = len(self.commits)
        self.scene.counted = self.counted()

    def counted(self) -> int:
        keys = list(self.redis.scan_iter("delays/visibility/*"))
        with self.redis.pipeline(transaction=False) as batch:
            for key in keys:
                batch.hget(key, "flights")
            return sum(map(int, filter(None, batch.execute())))

    # The evidence for the report.

    def evidence(self, expected: pd.DataFrame, unfinished: str) -> Evidence:
        return Evidence(
            history=self.history,
            commits=self.commits,
            accepted=[json.loads(entry) for entry in self.redis.lrange(ACCEPTED, 0, -1)],
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
