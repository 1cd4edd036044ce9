"""Carry out a scenario on a cluster, and wait until it has settled."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import attrs
from kube_api import at
from kube_cluster import Cluster, NodeProcess, wait_for
from programs import command
from rollout_records import APP, Records, SaidRecords, now
from scenarios import GRACE_S, Scenario
from sidecar_pods import SIDECAR, pod_spec, run_spec

from rink.testing import EtcdNode
from rink.testing.history import HistoryEvent, Judgement, What

QUIET_S = 1.0
PROBE = {"exec": {"command": ["test", "-e", "ready"]}, "periodSeconds": 1}


class NoNetworkError(RuntimeError):
    """Report that pods with a sidecar need networks of their own.

    Each sidecar listens on the same port.
    """


@attrs.frozen
class Happened:
    """Hold what came of a row.

    Attributes:
        began: when the rollout began; moves count from here.
        struck: when a fault struck; None if none did.
        judgement: of all events.
        starts: how many seconds each pod took from its creation until its program had joined.
        changes: how often roles were distributed anew, see `Records.changes`.
        healthy_moves: in a crash loop, how often roles moved away from pods that went on with
            their rank.
        seconds: how long the row took.
    """

    began: float
    struck: float | None
    judgement: Judgement
    starts: list[float]
    changes: int
    seconds: float
    healthy_moves: int | None = None


class Rollout:
    """Run one scenario in a namespace of its own, on nodes of its own.

    `TIMEOUT_S` bounds each wait for something to happen.

    Attributes:
        replicas: how many pods there are to be.
        struck: when a fault struck.
        healthy_moves: see `Happened`.
        records: what members and nodes wrote.

    Args:
        cluster: where.
        scenario: what.
        etcd: of the members.
    """

    TIMEOUT_S = 240.0

    def __init__(self, cluster: Cluster, scenario: Scenario, etcd: EtcdNode) -> None:
        if scenario.prints and cluster.network is None:
            raise NoNetworkError(f"{scenario.name}: {cluster.why_no_network}")
        self.scenario = scenario
        self.etcd = etcd
        self.api = cluster.api
        self.namespace = scenario.name
        self.replicas = scenario.replicas
        self.nodes: list[NodeProcess] = []
        self.struck: float | None = None
        self.healthy_moves: int | None = None
        self.kind = "statefulsets" if scenario.strategy is None else "deployments"
        self.path = at(self.kind, self.namespace, APP)
        self._cluster = cluster
        self._folder = cluster.folder / "events" / scenario.name
        self._folder.mkdir(parents=True)
        self._revision = 1
        kind = SaidRecords if scenario.prints else Records
        self.records = kind(self._folder, lambda: [node.journal for node in self.nodes])

    # ── deployments ──────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start the nodes and the workload."""
        for number in range(self.scenario.nodes):
            node = self._cluster.node(
                f"{self.namespace}-{number}",
                start_delay=self.scenario.pod_start,
                seed=number,
                backoff_factor=0.1,
            )
            self.nodes.append(node)
        self.api.create(at("namespaces"), {"metadata": {"name": self.namespace}})
        self._cluster.bind_pods(self.namespace, [node.settings.name for node in self.nodes])
        self.api.create(at(self.kind, self.namespace), self._workload())

    def _workload(self) -> dict[str, Any]:
        spec: dict[str, Any] = {
            "replicas": self.replicas,
            "selector": {"matchLabels": {"app": APP}},
            "template": self.template(),
        }
        if self.scenario.strategy is None:
            spec |= {"serviceName": APP, "podManagementPolicy": "Parallel"}
        else:
            spec |= {"strategy": self.scenario.strategy}
        return {"metadata": {"name": APP}, "spec": spec}

    def template(self, *more: str) -> dict[str, Any]:
        """Return the pods' template, with more options of the program."""
        labels = {"app": APP, "revision": str(self._revision)}
        if self.scenario.has_sidecar:
            spec = pod_spec(self.scenario, self.etcd, APP, *more)
            return {"metadata": {"labels": labels}, "spec": spec}
        if self.scenario.runs == "run":
            spec = run_spec(self.scenario, self.etcd, APP)
            return {"metadata": {"labels": labels}, "spec": spec}
        name = {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
        container = {
            "name": APP,
            "image": "none",
            "command": [*command(self.scenario, self._cluster, self.etcd, self._folder), *more],
            "env": [name],
            "readinessProbe": PROBE,
        }
        spec = {
            "terminationGracePeriodSeconds": GRACE_S,
            "hostNetwork": self.scenario.needs_apiserver,  # which listens on loopback only
            "containers": [container],
        }
        return {"metadata": {"labels": labels}, "spec": spec}

    # ── actions ──────────────────────────────────────────────────────────────────────────────

    def roll(self, *more: str) -> None:
        """Begin a rollout of a new revision."""
        self._revision += 1
        self.roll_back(self.template(*more))

    def roll_back(self, template: dict[str, Any]) -> None:
        """Roll out an earlier template, as `kubectl rollout undo` does."""
        self.api.patch(self.path, {"spec": {"template": template}})

    def scale(self, replicas: int) -> None:
        """Change the number of pods."""
        self.replicas = replicas
        self.api.patch(self.path, {"spec": {"replicas": replicas}})

    def kill_node(self, node: NodeProcess) -> None:
        """Kill a node with all its processes.

        Note that its pods' programs are dead.
        """
        self.struck = now()
        died = node.kill()
        for pod in self.pods():
            if pod["spec"].get("nodeName") == node.settings.name:
                self.records.observe(HistoryEvent(What.ENDED, pod["metadata"]["name"], died))

    def stop(self) -> None:
        """Delete the workload, and wait until its pods are gone."""
        self.api.delete(at("namespaces", name=self.namespace))
        self.wait(lambda: not self.pods(), "the end of all pods")
        for node in self.nodes:
            node.stop()
            self.api.delete(at("nodes", name=node.settings.name))

    # ── observations ────────────────────────────────────────────────────────────────────────

    def wait(self, is_so: Any, what: str) -> None:
        """Wait until something is so.

        Raises:
            TimeoutError: it was not in time; shows what the programs and the nodes printed last.
        """
        try:
            wait_for(is_so, self.TIMEOUT_S, f"{self.namespace}: {what}")
        except TimeoutError as error:
            error.add_note(f"the programs and the nodes said:\n{self.last_words()}")
            raise

    def last_words(self) -> str:
        """Return the last line that each pod's program and each node printed."""
        folders = [node.settings.folder for node in self.nodes]
        names = (APP, SIDECAR)
        logs = [log for one in folders for name in names for log in one.glob(f"pods/*/{name}.log")]
        logs += [folder / "node.log" for folder in folders]
        lines = [path.read_text(errors="replace").strip().rpartition("\n")[2] for path in logs]
        return "\n".join(sorted(set(lines)))

    def pod_folder(self, pod: str) -> Path:
        """Return the working folder of a pod's containers."""
        (folder,) = [
            one
            for node in self.nodes
            for one in node.settings.folder.glob(f"pods/{self.namespace}_{pod}_*")
        ]
        return folder

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods, those that end too."""
        return self.api.get(at("pods", self.namespace))["items"]

    def new_pods(self) -> list[dict[str, Any]]:
        """Return the pods of the newest revision."""
        return [pod for pod in self.pods() if self._is_new(pod)]

    def old_pods(self) -> list[dict[str, Any]]:
        """Return the pods of earlier revisions that are not ending."""
        return [
            pod
            for pod in self.pods()
            if not self._is_new(pod) and "deletionTimestamp" not in pod["metadata"]
        ]

    def _is_new(self, pod: dict[str, Any]) -> bool:
        return pod["metadata"]["labels"]["revision"] == str(self._revision)

    def wait_new_pod(self) -> None:
        """Wait until a pod of the newest revision is ready."""
        self.wait(lambda: any(map(is_ready, self.new_pods())), "a new pod that is ready")

    def wait_rolled(self) -> None:
        """Wait until each pod is new and ready, and no old one is left."""
        self.wait(self._is_rolled, "the end of the rollout")

    def _is_rolled(self) -> bool:
        return is_rolled(self.api.get(self.path), self.pods())

    def wait_settled(self, ranked: int | None = None) -> None:
        """Wait until each pod has a rank and each role is held.

        Nothing may have changed for a second.

        Args:
            ranked: the number of pods with a rank, if not all.
        """
        self.wait(lambda: self._is_settled(ranked), "a settled group")

    def _is_settled(self, ranked: int | None) -> bool:
        last = max((event.at for event in self.records.events()), default=now())
        if now() - last < QUIET_S or not self.are_all_held():
            return False
        # A peer of Rink has no ranks.
        wanted = self.replicas if ranked is None else ranked
        if self.scenario.runs == "run":
            wanted = 1
        return self.scenario.is_peer or len(self.records.ranks()) == wanted

    def are_all_held(self) -> bool:
        """Return whether each role is held by somebody."""
        return not self.records.judge().not_held(self.scenario.roles)


def is_rolled(workload: dict[str, Any], pods: list[dict[str, Any]]) -> bool:
    """Return whether all pods of a workload are new and ready.

    No old pod may be left.
    """
    status, wanted = workload.get("status", {}), workload["spec"]["replicas"]
    counts = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    return (
        status.get("observedGeneration") == workload["metadata"]["generation"]
        and all(status.get(count, 0) == wanted for count in counts)
        and len(pods) == wanted
    )


def is_ready(pod: dict[str, Any]) -> bool:
    """Return whether a pod's condition Ready is true."""
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def carry_out(cluster: Cluster, scenario: Scenario, etcd: EtcdNode) -> Happened:
    """Carry out one scenario, and return what came of it."""
    from happenings import HAPPENINGS  # it imports this module

    began_at = time.monotonic()
    rollout = Rollout(cluster, scenario, etcd)
    rollout.start()
    try:
        began = HAPPENINGS[scenario.happens](rollout)
        return Happened(
            began=began,
            struck=rollout.struck,
            judgement=rollout.records.judge(),
            starts=rollout.records.starts(began),
            changes=rollout.records.changes(began),
            healthy_moves=rollout.healthy_moves,
            seconds=time.monotonic() - began_at,
        )
    finally:
        rollout.stop()
