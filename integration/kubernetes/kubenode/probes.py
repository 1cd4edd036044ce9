"""Probe a container as the kubelet does: a loop for each of its probes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kubenode.handlers import handle

if TYPE_CHECKING:
    from kubenode.container import Container


class Probes:
    """Probe one container, with new probes for each life of its process.

    Readiness and liveness wait until the startup probe has succeeded. If that or liveness fails
    too often, the container is ended, and its restart policy decides what follows.

    Args:
        container: whose.
        changed: called when the pod's status may differ.
    """

    def __init__(self, container: Container, changed: Callable[[], None]) -> None:
        self._container = container
        self._changed = changed
        self._is_ending = False

    async def run(self) -> None:
        """Probe until it is cancelled, when the process has ended."""
        self._is_ending = False
        kinds = [kind for kind in ("readiness", "liveness") if self._spec(kind)]
        if not self._spec("readiness"):
            self._container.is_ready = True
        if not self._spec("startup"):
            self._container.has_started()
            self._changed()
        elif not await self._starts():
            return
        await asyncio.gather(*(self._repeat(kind) for kind in kinds))

    def _spec(self, kind: str) -> dict[str, Any] | None:
        return self._container.spec.get(f"{kind}Probe")

    async def _starts(self) -> bool:
        """Return True when the startup probe succeeds.

        If it fails too often, end the container.
        """
        async for is_good in self._results("startup"):
            if is_good:
                self._container.has_started()
                self._changed()
                return True
            await self._restart("startup")
            return False
        return False

    async def _repeat(self, kind: str) -> None:
        async for is_good in self._results(kind):
            if kind == "readiness":
                if self._container.is_ready != is_good:
                    self._container.is_ready = is_good
                    self._changed()
            elif not is_good:
                await self._restart(kind)
                return

    async def _results(self, kind: str):
        """Yield the result each time that a threshold is reached."""
        probe = self._spec(kind)
        assert probe is not None
        since = time.time() - self._container.started_at
        await asyncio.sleep(max(0.0, probe.get("initialDelaySeconds", 0) - since))
        good = bad = 0
        while True:
            if await handle(self._container, probe, probe.get("timeoutSeconds", 1)):
                good, bad = good + 1, 0
            else:
                good, bad = 0, bad + 1
            if good >= probe.get("successThreshold", 1):
                yield True
            elif bad >= probe.get("failureThreshold", 3):
                yield False
            await asyncio.sleep(probe.get("periodSeconds", 10))

    async def _restart(self, kind: str) -> None:
        """End the container, unless the pod ends: then its own order decides."""
        if self._is_ending:
            return
        probe = self._spec(kind) or {}
        grace = probe.get("terminationGracePeriodSeconds", self._container.grace)
        # Not awaited here: the end of the process cancels the probes, and so would cancel this.
        self._ending = asyncio.ensure_future(self._container.end(grace))
        await asyncio.shield(self._ending)

    def stop_restarting(self) -> None:
        """End no container any more: its pod ends. Readiness is probed on."""
        self._is_ending = True
