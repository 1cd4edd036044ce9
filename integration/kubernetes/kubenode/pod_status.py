"""Write a pod's status from its containers, as the kubelet does."""

from __future__ import annotations

import datetime as dt
from typing import Any

from kubenode.container import Container


def moment(seconds: float | None = None) -> str:
    """Return a time as Kubernetes writes it; now if None."""
    utc = dt.UTC
    at = dt.datetime.now(utc) if seconds is None else dt.datetime.fromtimestamp(seconds, utc)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def state_of(container: Container) -> dict[str, Any]:
    """Return a container's state: running, terminated or waiting."""
    if container.is_running:
        return {"running": {"startedAt": moment(container.started_at)}}
    if container.exit_code is not None and not container.waits:
        return {"terminated": ended(container)}
    return {"waiting": {"reason": container.waits, "message": container.message}}


def ended(container: Container) -> dict[str, Any]:
    """Return how a container's last process ended."""
    return {
        "exitCode": container.exit_code,
        "reason": "Completed" if container.exit_code == 0 else "Error",
        "startedAt": moment(container.started_at),
        "finishedAt": moment(container.ended_at),
    }


def status_of(container: Container) -> dict[str, Any]:
    """Return an entry of containerStatuses."""
    status = {
        "name": container.name,
        "image": container.spec.get("image", ""),
        "imageID": "",
        "ready": container.is_running and container.is_ready and container.is_started,
        "started": container.is_running and container.is_started,
        "restartCount": container.restarts,
        "state": state_of(container),
    }
    if container.exit_code is not None and "terminated" not in status["state"]:
        status["lastState"] = {"terminated": ended(container)}
    return status


def phase(mains: list[Container], policy: str, *, is_initialized: bool, has_failed: bool) -> str:
    """Return the pod's phase (`getPhase` of the kubelet)."""
    if has_failed:
        return "Failed"
    ran = [one for one in mains if one.is_running or one.exit_code is not None]
    if not is_initialized or len(ran) < len(mains):
        return "Pending"
    stopped = [one for one in mains if not one.is_running and not one.waits]
    if policy == "Always" or len(stopped) < len(mains):
        return "Running"
    return "Succeeded" if all(one.exit_code == 0 for one in mains) else "Failed"


class Conditions:
    """Keep since when each condition of a pod is as it is."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, str]] = {}

    def listed(self, **states: bool) -> list[dict[str, str]]:
        """Return the conditions with the times of their last change."""
        for kind, is_so in states.items():
            status = str(is_so)
            if self._since.get(kind, ("", ""))[0] != status:
                self._since[kind] = status, moment()
        return [
            {"type": kind, "status": status, "lastTransitionTime": at}
            for kind, (status, at) in self._since.items()
        ]
