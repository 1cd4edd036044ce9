"""Run faults side by side, each lane with a group of its own.

A lane has two sidecars. All lanes share one etcd.
"""

from __future__ import annotations

import queue
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path

import attrs

from rink.testing import EtcdNode
from safety.faults import FAULTS, NonsenseProxy
from safety.running import Programs, Sidecar
from safety.stage import Stage, Verdict

BY_NAME = {fault.name: fault for fault in FAULTS}


@attrs.frozen
class Run:
    """Name one run."""

    fault: str
    number: int
    seed: int

    @property
    def name(self) -> str:
        """Return its name, which determines all its random choices."""
        return f"{self.seed}/{self.fault}/{self.number}"


class Lane(threading.Thread):
    """Execute runs, one after the other, until none is left.

    The sidecars stay from one run to the next, so each run begins in the state that the run before
    left.
    """

    def __init__(self, number: int, shared: Lanes) -> None:
        super().__init__(name=f"lane-{number}")
        self._number = number
        self._shared = shared

    def run(self) -> None:
        """Execute runs."""
        shared = self._shared
        folder = shared.folder / f"lane-{self._number}"
        folder.mkdir()
        prefix = f"{folder.parent.name}-{self._number}/"
        sidecars: list[Sidecar] = []
        try:
            sidecars += (Sidecar(name, shared.etcd.endpoint, prefix, folder) for name in "ab")
            for sidecar in sidecars:
                sidecar.wait()
            while (run := shared.next_run()) is not None:
                shared.done(self._one(run, sidecars))
            for sidecar in sidecars:
                shared.troubles += [f"lane {self._number}: {bug}" for bug in sidecar.bugs()]
        except BaseException:
            shared.troubles.append(f"lane {self._number}: {traceback.format_exc()}")
        finally:
            for sidecar in sidecars:
                sidecar.kill()

    def _one(self, run: Run, sidecars: list[Sidecar]) -> Verdict:
        began, fault = time.monotonic(), BY_NAME[run.fault]
        number = self._shared.next_number()
        programs, proxy = self._shared.programs, self._shared.proxy
        stage = Stage(programs, sidecars, run.name, number, fault.settings, proxy)
        try:
            stage.begin()
            time.sleep(stage.random.uniform(0, 0.4))
            stage.since = time.clock_gettime(time.CLOCK_BOOTTIME)
            for pause in fault.steps(stage):
                time.sleep(pause)
            stage.recover()
        except Exception:  # the other runs go on
            stage.problems.append(traceback.format_exc())
        finally:
            stage.close()
        for sidecar in sidecars:
            sidecar.revive()
        return stage.verdict(run.fault, run.name, time.monotonic() - began)


class Lanes:
    """Run faults.

    Args:
        etcd: the server of all groups.
        runs: the runs in order.
        count: the number of lanes.
        done: called with each verdict, by any thread.
    """

    def __init__(
        self, etcd: EtcdNode, runs: list[Run], count: int, done: Callable[[Verdict], None]
    ) -> None:
        self.etcd = etcd
        self.troubles: list[str] = []
        self._runs: queue.SimpleQueue[Run] = queue.SimpleQueue()
        for run in runs:
            self._runs.put(run)
        self._count = min(count, len(runs))
        self._done = done
        self._lock = threading.Lock()
        self._number = 0

    def carry_out(self) -> list[str]:
        """Execute all runs, and return troubles outside of runs."""
        proxy = NonsenseProxy()
        self.proxy = proxy.url
        with tempfile.TemporaryDirectory(prefix="sidecar-faults-") as folder:
            self.folder = Path(folder)
            self.programs = Programs(self.folder / "programs.log")
            try:
                lanes = [Lane(number, self) for number in range(self._count)]
                for lane in lanes:
                    lane.start()
                for lane in lanes:
                    lane.join()
            except KeyboardInterrupt:  # the lanes end after their present runs
                self.stop()
                for lane in lanes:
                    lane.join()
                self.troubles.append("it was stopped")
            finally:
                self.programs.close()
                proxy.close()
            if text := self.programs.stderr.read_text(errors="replace"):
                self.troubles.append(f"a program failed: {text[:2000]}")
        return self.troubles

    def stop(self) -> None:
        """Begin no further run."""
        while self.next_run() is not None:
            pass

    def next_run(self) -> Run | None:
        """Return the next run, if there is one."""
        try:
            return self._runs.get_nowait()
        except queue.Empty:
            return None

    def next_number(self) -> int:
        """Return a number that no other run has."""
        with self._lock:
            self._number += 1
            return self._number

    def done(self, verdict: Verdict) -> None:
        """Take a verdict."""
        with self._lock:
            self._done(verdict)
