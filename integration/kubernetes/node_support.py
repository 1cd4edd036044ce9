"""Make pods for the tests of the node, and read the node's notes."""

from __future__ import annotations

import contextlib
from typing import Any

from kube_api import ApiError, at
from kube_cluster import Cluster, NodeProcess, wait_for
from rollout_records import read_lines

WITHIN_S = 30.0


class Bench:
    """Hold a namespace with a node of its own, for the tests' pods."""

    def __init__(self, cluster: Cluster, name: str, **settings: Any) -> None:
        self.api = cluster.api
        self.namespace = name
        self.node: NodeProcess = cluster.node(name, **settings)
        self.api.create(at("namespaces"), {"metadata": {"name": name}})
        cluster.bind_pods(name, [name])

    def close(self) -> None:
        """Delete everything, by force."""
        for pod in self.api.get(at("pods", self.namespace))["items"]:
            with contextlib.suppress(ApiError):
                self.api.delete(self.path(pod["metadata"]["name"]), grace=0)
        self.node.stop()
        self.api.delete(at("namespaces", name=self.namespace))
        self.api.delete(at("nodes", name=self.node.settings.name))

    def path(self, pod: str) -> str:
        """Return the path of a pod."""
        return at("pods", self.namespace, pod)

    def put(self, name: str, *containers: dict[str, Any], **spec: Any) -> None:
        """Create a pod."""
        body = {
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"containers": list(containers), **spec},
        }
        self.api.create(at("pods", self.namespace), body)

    def pod(self, name: str) -> dict[str, Any] | None:
        """Return a pod, None if it is gone."""
        try:
            return self.api.get(self.path(name))
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def status(self, name: str) -> dict[str, Any]:
        """Return a pod's status."""
        return (self.pod(name) or {}).get("status", {})

    def condition(self, name: str, kind: str = "Ready") -> str:
        """Return a condition of a pod: "True", "False" or ""."""
        conditions = self.status(name).get("conditions", [])
        return next((one["status"] for one in conditions if one["type"] == kind), "")

    def container(self, name: str) -> dict[str, Any]:
        """Return the status of a pod's first container."""
        return self.status(name).get("containerStatuses", [{}])[0]

    def log(self, name: str, container: str) -> str:
        """Return what a pod's container printed."""
        folders = self.node.settings.folder.glob(f"pods/{self.namespace}_{name}_*")
        return "".join((folder / f"{container}.log").read_text() for folder in folders)

    def delete(self, name: str, grace: int | None = None) -> None:
        """Delete a pod, and wait until it is gone."""
        self.api.delete(self.path(name), grace=grace)
        self.wait(lambda: self.pod(name) is None, f"the end of {name}")

    def wait(self, is_so: Any, what: str) -> None:
        """Wait until something is so."""
        wait_for(is_so, WITHIN_S, f"{what}; the node did: {self.notes()[-10:]}")

    def wait_ready(self, name: str) -> None:
        """Wait until a pod is ready."""
        self.wait(lambda: self.condition(name) == "True", f"{name} ready")

    def notes(self, pod: str | None = None) -> list[dict[str, Any]]:
        """Return what the node noted about a pod, or about all."""
        return [note for note in read_lines(self.node.journal) if pod in {None, note["pod"]}]

    def when(self, pod: str, what: str, container: str) -> float:
        """Return when the node noted something of a container for the first time."""
        return self.times(pod, what, container)[0]

    def times(self, pod: str, what: str, container: str) -> list[float]:
        """Return all times at which the node noted something of a container."""
        return [
            note["at"]
            for note in self.notes(pod)
            if note["what"] == what and note["container"] == container
        ]


def shell(name: str, script: str, **more: Any) -> dict[str, Any]:
    """Return a container that runs a shell script."""
    return {"name": name, "image": "none", "command": ["sh", "-c", script], **more}


def sidecar(name: str, script: str, **more: Any) -> dict[str, Any]:
    """Return a native sidecar."""
    return shell(name, script, restartPolicy="Always", **more)


def hook(script: str) -> dict[str, Any]:
    """Return a lifecycle with a preStop hook."""
    return {"preStop": {"exec": {"command": ["sh", "-c", script]}}}


FOREVER = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; while :; do sleep 0.05; done"
