"""Start, probe, restart and end the process of one container."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from kubenode.environment import UnsupportedError, command, variables
from kubenode.handlers import handle
from kubenode.node_journal import Journal
from kubenode.probes import Probes

BACKOFF_S = 10.0
MAX_BACKOFF_S = 300.0
MINIMUM_GRACE_S = 2
"""The least time between SIGTERM and SIGKILL, as the kubelet has it."""
PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def die_with_node() -> None:
    """Ask the kernel to kill this process when the node's thread ends."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


@attrs.frozen(kw_only=True)
class Place:
    """Hold what the node gives to a pod, and so to all of its containers.

    Attributes:
        folder: their working folder.
        prefix: what enters the pod's network namespace; empty on the host's network.
        ip: the pod's address.
        host_ip: the node's address.
        journal: where the node notes what it does.
        backoff_factor: 1 is the kubelet's time between restarts, less is faster.
        image_env: the variables that an image would set; the container's own come after them.
    """

    folder: Path
    prefix: tuple[str, ...]
    ip: str
    host_ip: str
    journal: Journal
    backoff_factor: float
    image_env: dict[str, str]


@attrs.frozen
class Surroundings:
    """Hold what all containers of a pod share.

    Attributes:
        pod: the pod as the apiserver has it.
        place: where it runs.
        changed: called when the pod's status may differ.
    """

    pod: dict[str, Any]
    place: Place
    changed: Callable[[], None]

    @property
    def name(self) -> str:
        """Return the pod's name."""
        return str(self.pod["metadata"]["name"])


class Container:
    """Run a container of a pod.

    Attributes:
        spec: its part of the pod's spec.
        restarts: how often it was started again.
        exit_code: of its last process; None if none has ended.
        is_started: its startup probe has succeeded, or it has none.
        is_ready: its readiness probe succeeds, or it has none.
        waits: why it does not run, such as "CrashLoopBackOff".
        message: more about that.
    """

    def __init__(self, spec: dict[str, Any], around: Surroundings, *, is_sidecar: bool) -> None:
        self.spec = spec
        self.name: str = spec["name"]
        self.is_sidecar = is_sidecar
        self.restarts = 0
        self.exit_code: int | None = None
        self.is_started = False
        self.is_ready = False
        self.waits = "PodInitializing"
        self.message = ""
        self.started_at = 0.0
        self.ended_at = 0.0
        self._around = around
        self._process: asyncio.subprocess.Process | None = None
        self._started = asyncio.Event()
        self._stopping = asyncio.Event()
        self._failures = 0
        self._probes = Probes(self, around.changed)

    @property
    def ip(self) -> str:
        """Return the address at which probes reach it."""
        return self._around.place.ip

    @property
    def is_running(self) -> bool:
        """Return whether its process runs."""
        return self._process is not None and self._process.returncode is None

    async def started(self) -> None:
        """Wait until its startup probe has succeeded."""
        await self._started.wait()

    def has_started(self) -> None:
        """Note that its startup probe has succeeded."""
        self.is_started = True
        self._started.set()

    async def run(self, policy: str) -> None:
        """Run it until the policy says that it is not started again.

        The first restart comes at once. Each further one waits twice as long as the one before,
        from 10 s up to 5 min, times the node's factor: CrashLoopBackOff.
        """
        while True:
            try:
                await self._run_once()
            except (UnsupportedError, OSError) as error:
                self.exit_code, self.message = 128, str(error)
                self._around.place.journal.note(
                    "refused", self._around.name, self.name, why=str(error)
                )
            if policy == "Never" or (policy == "OnFailure" and self.exit_code == 0):
                self.waits = ""
                self._around.changed()
                return
            if not await self._back_off():
                self.waits = ""
                return
            self.restarts += 1

    def stop(self) -> None:
        """Stop restarting and probing the container, since its pod ends.

        Its process runs on.
        """
        self._stopping.set()
        self._probes.stop_restarting()

    async def _back_off(self) -> bool:
        """Wait before the next start.

        Return False if there is none, since the pod ends.
        """
        lasted = self.ended_at - self.started_at
        if lasted > 2 * MAX_BACKOFF_S:
            self._failures = 0
        pause = min(BACKOFF_S * 2 ** (self._failures - 1), MAX_BACKOFF_S) if self._failures else 0.0
        self._failures += 1
        self.waits = "CrashLoopBackOff"
        self._around.changed()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause * self._around.place.backoff_factor):
                await self._stopping.wait()
        return not self._stopping.is_set()

    async def _run_once(self) -> None:
        around = self._around
        self.is_started = self.is_ready = False
        self._started.clear()
        self._process = await self.spawn(command(self.spec, self._variables()), quiet=False)
        if self._stopping.is_set():  # the pod's end began while it was being started
            os.killpg(self._process.pid, signal.SIGKILL)
        self.started_at, self.waits, self.message = time.time(), "", ""
        around.place.journal.note("started", around.name, self.name, pid=self._process.pid)
        around.changed()
        tasks = [asyncio.create_task(self._probes.run())]
        if hook := self.spec.get("lifecycle", {}).get("postStart"):
            tasks.append(asyncio.create_task(self._post_start(hook)))
        try:
            code = await self._process.wait()
        finally:
            for task in tasks:
                task.cancel()
        self._ended(code)

    def _ended(self, code: int) -> None:
        assert self._process is not None
        with contextlib.suppress(
            ProcessLookupError
        ):  # the rest of its processes, as a runtime does
            os.killpg(self._process.pid, signal.SIGKILL)
        self.exit_code = code if code >= 0 else 128 - code
        self.ended_at = time.time()
        self.is_started = self.is_ready = False
        self._around.place.journal.note("ended", self._around.name, self.name, code=self.exit_code)

    async def _post_start(self, hook: dict[str, Any]) -> None:
        if not await handle(self, hook, float("inf")):
            await self.end(float(self.grace))

    @property
    def grace(self) -> int:
        """Return how long it has to end, in seconds, if the pod itself goes on."""
        return int(self._around.pod["spec"].get("terminationGracePeriodSeconds", 30))

    async def end(self, grace: float) -> None:
        """Run the container's preStop hook, then end it.

        Both take at most `grace` seconds together, but the end gets at least 2 s. This is the end
        of one container, as after a failed liveness probe.
        """
        await self.end_process(grace - await self.pre_stop(grace))

    async def pre_stop(self, grace: float) -> int:
        """Run the preStop hook; return the whole seconds it took.

        The hook gets at most `grace` seconds.
        """
        hook = self.spec.get("lifecycle", {}).get("preStop")
        if not hook or grace <= 0:
            return 0
        began = time.monotonic()
        journal, pod = self._around.place.journal, self._around.name
        journal.note("hook", pod, self.name)
        succeeded = await handle(self, hook, grace)
        journal.note("hook ended", pod, self.name, succeeded=succeeded)
        return int(time.monotonic() - began)  # the kubelet counts whole seconds, too

    async def end_process(self, grace: float) -> None:
        """Send SIGTERM, and after `grace` seconds, at least 2 s, SIGKILL."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(max(grace, MINIMUM_GRACE_S)):
                await process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)
            await process.wait()

    def _signal(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        self._around.place.journal.note(number.name, self._around.name, self.name)
        with contextlib.suppress(ProcessLookupError):
            if number == signal.SIGKILL:
                os.killpg(process.pid, number)
            else:
                process.send_signal(number)

    def _variables(self) -> dict[str, str]:
        around = self._around
        return variables(
            self.spec, around.pod, {"podIP": around.place.ip, "hostIP": around.place.host_ip}
        )

    async def spawn(self, words: list[str], *, quiet: bool) -> asyncio.subprocess.Process:
        """Start a process in the container; one that is quiet has no output."""
        around = self._around
        env = os.environ | around.place.image_env | {"HOSTNAME": around.name} | self._variables()
        with (around.place.folder / f"{self.name}.log").open("ab") as log:
            output = asyncio.subprocess.DEVNULL if quiet else log
            return await asyncio.create_subprocess_exec(
                *around.place.prefix,
                *words,
                cwd=around.place.folder,
                env=env,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=die_with_node,
            )
