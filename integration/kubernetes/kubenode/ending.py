"""End a pod in the kubelet's order.

The order is that of `killContainer` of Kubernetes 1.37, with `terminationOrdering`. All containers
are ended at once, each by these steps within the pod's grace:

1. Its preStop hook runs. So all hooks start together. A hook that takes longer than the grace is
   no longer waited for.
2. A native sidecar waits for its turn: until all main containers have ended, and the sidecars that
   were started after it.
3. SIGTERM, which so comes when its own hook has ended, and never before.
4. SIGKILL when the rest of the grace is over, at least 2 s after SIGTERM.
"""

from __future__ import annotations

import asyncio
import time

from kubenode.container import Container


class Turns:
    """Say when it is a container's turn to get SIGTERM.

    Args:
        mains: the main containers.
        sidecars: the native sidecars, in the order in which they were started.
    """

    def __init__(self, mains: list[Container], sidecars: list[Container]) -> None:
        self._ended = {one.name: asyncio.Event() for one in (*mains, *sidecars)}
        self._before: dict[str, list[asyncio.Event]] = {}
        waits = [self._ended[main.name] for main in mains]
        for sidecar in reversed(sidecars):
            self._before[sidecar.name] = list(waits)
            waits.append(self._ended[sidecar.name])
        for one in (*mains, *sidecars):
            if not one.is_running:
                self.has_ended(one)

    async def wait(self, container: Container, grace: float) -> int:
        """Wait for the container's turn; return the whole seconds it took.

        The wait ends after `grace` seconds.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(grace):
                for event in self._before.get(container.name, []):
                    await event.wait()
        except TimeoutError:
            pass
        return int(time.monotonic() - began)  # the kubelet counts whole seconds

    def has_ended(self, container: Container) -> None:
        """Note that a container has ended."""
        self._ended[container.name].set()


async def end_all(mains: list[Container], sidecars: list[Container], grace: float) -> None:
    """End all containers that run; return when they have ended.

    Args:
        mains: the main containers, or the init container that runs.
        sidecars: the native sidecars, in the order in which they were started.
        grace: seconds.
    """
    turns = Turns(mains, sidecars)

    async def end_one(container: Container) -> None:
        left = grace - await container.pre_stop(grace)
        if left > 0:
            left -= await turns.wait(container, left)
        await container.end_process(left)
        turns.has_ended(container)

    await asyncio.gather(*(end_one(one) for one in (*mains, *sidecars) if one.is_running))
