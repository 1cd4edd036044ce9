"""Run a Spark standalone cluster on 127.0.0.1, with Rink from the wheel.

Each worker stands for a machine. It has its own folders, and a session of processes with its
executors and their Python workers, so that all of it can be killed at once.
"""

import os
import re
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Self

import pyspark
import sessions
from driver_process import JAVA

REPOSITORY = Path(__file__).parents[2]
SPARK = Path(pyspark.__file__).parent
CLASSES = "org.apache.spark.deploy"
MEMORY = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": JAVA}
WAIT_S = 60.0
LOG_SHOWN = 3000


def python_with_the_wheel(folder: Path) -> str:
    """Build the wheel and install it into a new environment.

    All other packages come from the environment that runs the tests. A path in a .pth file is
    searched after the environment's own, and .pth files in that path are not read. So nothing leads
    to the checkout.
    """
    here, home = sys.executable, folder / "venv"
    _run(here, "-m", "build", "--wheel", "--outdir", str(folder / "dist"), str(REPOSITORY))
    _run(here, "-m", "venv", "--without-pip", str(home))
    python = str(home / "bin" / "python")
    (wheel,) = (folder / "dist").glob("*.whl")
    install = ["install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    _run(here, "-m", "pip", "--disable-pip-version-check", "--python", python, *install)
    (site,) = home.glob("lib/python*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)
    if done.returncode:
        said = (done.stdout + done.stderr)[-LOG_SHOWN:]
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {said}")


class Daemon:
    """A master or a worker, with all processes that it starts.

    Args:
        name: the name of its folder.
        folder: where that folder is made.
        command: the class, and its arguments.
    """

    def __init__(self, name: str, folder: Path, *command: str) -> None:
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        self.log = self.folder / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(SPARK / "bin" / "spark-class"), *command],
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _environment(self) -> dict[str, str]:
        # As on another machine: the driver's environment does not name modules.
        known = {name: value for name, value in os.environ.items() if not name.startswith("PY")}
        own = {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            # Executors inherit it, and a killed JVM leaves files there.
            "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={self.folder}",
        }
        return known | MEMORY | own | {"SPARK_HOME": str(SPARK)}

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return when its log has this text; on failure show the log's end."""
        end = time.monotonic() + WAIT_S
        while True:
            has_ended, log = self._process.poll() is not None, self.log.read_text()
            if found := re.search(pattern, log):
                return found
            if has_ended or time.monotonic() > end:
                how = "it ended" if has_ended else f"waited {WAIT_S:g} s in vain"
                raise AssertionError(
                    f"{self.name}: {how} before its log had {pattern!r}: {log[-LOG_SHOWN:]}"
                )
            time.sleep(0.05)

    def processes(self) -> list[int]:
        """Return its process, its executors and their Python workers."""
        return sessions.processes_of(self._process.pid)

    def kill(self) -> None:
        """Kill all of them at once, as a power cut does."""
        sessions.kill(self._process)


class Cluster:
    """A master and workers; a context manager, which leaves nothing behind.

    Args:
        folder: for logs and work.
        cores: the cores of each worker.
    """

    def __init__(self, folder: Path, cores: int = 1) -> None:
        self._folder, self._cores = folder, cores
        self._started: list[Daemon] = []
        self.workers: list[Daemon] = []
        self.url = ""
        """Return the master's URL for drivers."""

    def start(self, workers: int) -> None:
        """Return when all workers are registered."""
        told = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        master = Daemon("master", self._folder, f"{CLASSES}.master.Master", *told)
        self._started.append(master)
        self.url = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
        self.add_workers(workers)

    def add_workers(self, count: int) -> None:
        """Start some more workers, and return when they are registered."""
        told = ["--host", "127.0.0.1", "--webui-port", "0", "-c", str(self._cores), "-m", "1g"]
        for _ in range(count):
            name = f"worker-{len(self._started)}"
            work = ["--work-dir", str(self._folder / name / "work")]
            worker = Daemon(name, self._folder, f"{CLASSES}.worker.Worker", *told, *work, self.url)
            self._started.append(worker)
            self.workers.append(worker)
        for worker in self.workers[-count:]:
            worker.wait_for("Successfully registered with master")

    def applications(self) -> set[str]:
        """Return the workers that had an executor of an application."""
        return {one.name for one in self._folder.glob("worker-*/work/app-*")}

    def kill_the_worker_of(self, pid: int) -> Daemon:
        """Kill the worker on which this process runs, and all that runs there."""
        (worker,) = (one for one in self.workers if pid in one.processes())
        worker.kill()
        self.workers.remove(worker)
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in reversed(self._started):
            one.kill()
