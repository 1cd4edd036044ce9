"""Run one pod on the node, from its start to its end."""

from __future__ import annotations

import asyncio
from typing import Any

from kube_api import ApiError, AsyncApi, at

from kubenode.container import Container, Place, Surroundings
from kubenode.ending import end_all
from kubenode.pod_status import Conditions, moment, phase, status_of


class Pod:
    """Run a pod until `end`.

    Args:
        obj: the pod as the apiserver has it.
        api: the apiserver.
        place: what the node gives to it.
        start_delay: seconds until the first container starts: a pull of images, or a slow program.
    """

    def __init__(
        self, obj: dict[str, Any], api: AsyncApi, place: Place, start_delay: float
    ) -> None:
        meta, self._spec = obj["metadata"], obj["spec"]
        self.uid: str = meta["uid"]
        self.name: str = meta["name"]
        self.namespace: str = meta["namespace"]
        self._path = at("pods", self.namespace, self.name)
        self._api, self._place, self._start_delay = api, place, start_delay
        self._policy: str = self._spec.get("restartPolicy", "Always")
        place.folder.mkdir(parents=True, exist_ok=True)
        self._changed = asyncio.Event()
        around = Surroundings(obj, place, self._changed.set)
        self._inits = [
            Container(spec, around, is_sidecar=spec.get("restartPolicy") == "Always")
            for spec in self._spec.get("initContainers", [])
        ]
        self._mains = [
            Container(spec, around, is_sidecar=False) for spec in self._spec["containers"]
        ]
        self._sidecars = [one for one in self._inits if one.is_sidecar]
        self._is_initialized = False
        self._has_failed = False
        self._conditions = Conditions()
        self._started_at = moment()
        self._reported: dict[str, Any] | None = None
        self._lives: list[asyncio.Task[None]] = []
        self._running = asyncio.create_task(self._run())
        self._reporting = asyncio.create_task(self._report_changes())
        self._ending: asyncio.Task[None] | None = None
        self._ending_begun = asyncio.Event()
        self._grace = float("inf")
        self._changed.set()

    # ── its life ─────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        await asyncio.sleep(self._start_delay)
        for init in self._inits:
            once = "Never" if self._policy == "Never" else "OnFailure"
            life = asyncio.create_task(init.run("Always" if init.is_sidecar else once))
            self._lives.append(life)
            if init.is_sidecar:
                await init.started()
            else:
                await asyncio.wait([life])  # unlike `await life`, it is not cancelled with this
                if init.exit_code:
                    self._has_failed = True
                    self._changed.set()
                    return
        self._is_initialized = True
        mains = [asyncio.create_task(main.run(self._policy)) for main in self._mains]
        self._lives.extend(mains)
        await asyncio.wait(mains)  # returns only if the policy lets them end
        for sidecar in self._sidecars:
            sidecar.stop()
        await end_all([], self._sidecars, self.grace)
        self._changed.set()

    # ── its end ──────────────────────────────────────────────────────────────────────────────

    def end(self, grace: float) -> None:
        """Begin to end the pod.

        A second call with a shorter grace begins anew with that grace.

        Args:
            grace: seconds, as the deletion says.
        """
        if grace >= self._grace:
            return
        self._grace = grace
        if self._ending is not None:
            self._ending.cancel()
        self._ending = asyncio.create_task(self._end(grace))
        self._ending_begun.set()

    @property
    def grace(self) -> float:
        """Return the grace that its spec gives it, in seconds."""
        return float(self._spec.get("terminationGracePeriodSeconds", 30))

    async def _end(self, grace: float) -> None:
        self._place.journal.note("ending", self.name, grace=grace)
        for container in (*self._inits, *self._mains):
            container.stop()
        self._running.cancel()  # starts nothing more
        current = [one for one in self._inits if not one.is_sidecar and one.is_running]
        await end_all([*self._mains, *current], self._sidecars, grace)
        await asyncio.gather(*self._lives, self._running, return_exceptions=True)
        self._changed.set()
        await self.report()
        self._reporting.cancel()
        self._grace = 0.0  # the deletion itself, which has grace 0, begins nothing anew
        await self._delete()
        self._place.journal.note("removed", self.name)

    async def _delete(self) -> None:
        """Delete the object.

        Another pod of the same name, as of a StatefulSet, is left alone.
        """
        try:
            await self._api.delete(self._path, grace=0, uid=self.uid)
        except ApiError as error:
            if error.code not in {404, 409}:
                raise

    async def ended(self) -> None:
        """Wait until it has ended and its object is gone."""
        await self._ending_begun.wait()
        while True:
            ending = self._ending
            assert ending is not None
            await asyncio.wait([ending])
            if ending is self._ending:  # else a shorter grace began anew
                ending.result()
                return

    # ── its status ───────────────────────────────────────────────────────────────────────────

    async def _report_changes(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self.report()

    def status(self) -> dict[str, Any]:
        """Return its status as the apiserver gets it."""
        mains, inits = ([status_of(one) for one in them] for them in (self._mains, self._inits))
        is_ready = self._is_initialized and all(
            status["ready"] for status in mains + [status_of(one) for one in self._sidecars]
        )
        kind = phase(
            self._mains, self._policy,
            is_initialized=self._is_initialized, has_failed=self._has_failed,
        )  # fmt: skip
        return {
            "phase": kind,
            "podIP": self._place.ip,
            "podIPs": [{"ip": self._place.ip}],
            "hostIP": self._place.host_ip,
            "startTime": self._started_at,
            "containerStatuses": mains,
            "initContainerStatuses": inits,
            "conditions": self._conditions.listed(
                PodScheduled=True,
                Initialized=self._is_initialized,
                ContainersReady=is_ready,
                Ready=is_ready,
            ),
        }

    async def report(self) -> None:
        """Send the status to the apiserver, if it differs from the last one."""
        status = self.status()
        if status == self._reported:
            return
        self._reported = status
        # A patch adds to the list, and a node that starts again may give the pod another address.
        addresses = [{"$patch": "replace"}, *status["podIPs"]]
        try:
            body = {"status": status | {"podIPs": addresses}}
            await self._api.patch(f"{self._path}/status", body)
        except ApiError as error:
            if error.code not in {404, 409}:
                raise
