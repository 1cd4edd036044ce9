"""Roll the example of the flights, and judge its totals and moves.

Everything is as in `examples/kubernetes/`: two Deployments of two pods with their commands, probes
and default strategy, their budgets and their claim, and later the Job that judges. Two values are
others: where etcd is, and how long the work takes. The node has no images and no volumes, so it
gives each container what the Dockerfile would: the program in Go, the paths of the modules, and the
shared folder. It has no ConfigMaps either, so the sidecar gets their values.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import attrs
from common.events import Tail
from flights_demo.store import Store
from kube_api import ApiError, at
from kube_build import environment, go_command, niced
from kube_cluster import Cluster, wait_for
from kube_parts import PartVerdict
from kustomized import Manifest, render
from rollouts import NoNetworkError, is_rolled
from sidecar_pods import known_env

NAME = "flights"
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "kubernetes"
DEPLOYMENTS = ("flights", "flights-go")
FLIGHTS = 336_776
JOBS_BEFORE_ROLL = 300
PACE_S = 0.03
"""Seconds of work for 40 flights. All the work then lasts more than `LATE_S`, and a roll 20 s."""
LATE_S = 65.0
"""Late moves come within this after the roll: `rebalance_delay`, 60 s, and what follows it."""
TIMEOUT_S = 240.0
RESTARTED = "kubectl.kubernetes.io/restartedAt"

Report = dict[str, Any]


@attrs.frozen(kw_only=True)
class Rolled:
    """Hold what came of the roll.

    Attributes:
        jobs_before: how many jobs were done when it began.
        jobs_after: how many were done when it had ended.
        roll_seconds: how long it took.
        job_succeeded: the check's Job succeeded.
        report: what its pod printed.
    """

    jobs_before: int
    jobs_after: int
    roll_seconds: float
    job_succeeded: bool
    report: Report


def on_node(manifest: Manifest, config: dict[str, str], values: dict[str, str]) -> Manifest:
    """Return a copy of a workload as the node can run it.

    Args:
        manifest: the workload.
        config: the data of its ConfigMap. Only the sidecar uses it.
        values: other values of variables, wherever a container has them.
    """
    manifest = copy.deepcopy(manifest)
    spec = manifest["spec"]["template"]["spec"]
    for container in (*spec["initContainers"], *spec["containers"]):
        container["env"] = known_env(container, config)
        for one in container["env"]:
            if one["name"] in values:
                one["value"] = values[one["name"]]
        if container["command"] == ["rink", "sidecar"]:
            container["args"] = []  # --files needs a volume
    return manifest


def build_program(folder: Path) -> None:
    """Build the program in Go into a folder, as the Dockerfile does.

    Raises:
        NoControlPlaneError: there is no Go.
        RuntimeError: it cannot be built; the message has what Go said.
    """
    command = [*niced(), go_command(), "build", "-o", str(folder / "flights-go"), "."]
    env = environment() | {"GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}
    done = subprocess.run(
        command, cwd=EXAMPLE / "go", env=env, check=False, capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(f"Go cannot build the flights' program:\n{done.stderr[-2000:]}")


class FlightsRoll:
    """Run the example in a namespace of its own, on a node of its own.

    Args:
        cluster: where.
    """

    def __init__(self, cluster: Cluster) -> None:
        if cluster.network is None:  # each sidecar listens on the same ports
            raise NoNetworkError(f"{NAME}: {cluster.why_no_network}")
        self._api = cluster.api
        self._folder = cluster.folder / "flights"
        self._folder.mkdir()
        programs = cluster.folder / "flights-programs"
        programs.mkdir()
        build_program(programs)
        folders = (programs, Path(sys.executable).parent, os.environ["PATH"])
        modules = (ROOT, ROOT / "examples", EXAMPLE)
        self._node = cluster.node(
            NAME,
            image_env={
                "PATH": os.pathsep.join(map(str, folders)),
                "PYTHONPATH": os.pathsep.join(map(str, modules)),
                "FLIGHTS_DIRECTORY": str(self._folder),
            },
        )
        self._api.create(at("namespaces"), {"metadata": {"name": NAME}})
        cluster.bind_pods(NAME, [NAME])
        manifests = render(EXAMPLE)
        (config,) = (one["data"] for one in manifests if one["kind"] == "ConfigMap")
        values = {"RINK_ETCD": cluster.etcd().endpoint, "FLIGHTS_PACE": f"{PACE_S}"}
        for manifest in manifests:
            is_workload = manifest["kind"] == "Deployment"
            self._create(on_node(manifest, config, values) if is_workload else manifest)
        self._paths = [at("deployments", NAME, name) for name in DEPLOYMENTS]

    def _create(self, manifest: Manifest) -> None:
        path = at(f"{manifest['kind'].lower()}s", NAME)
        self._api.create(path, manifest, fieldValidation="Strict")

    def run(self) -> Rolled:
        """Let the pods work, roll them once, and run the check's Job.

        Before the Job it waits for late moves.
        """
        self._wait(self._is_rolled, "the first pods")
        self._wait(self._are_all_ranked, "a rank of each pod")
        self._wait(lambda: self._jobs_done() >= JOBS_BEFORE_ROLL, "some work")
        began, jobs_before = time.monotonic(), self._jobs_done()
        self._restart()
        self._wait(self._is_rolled, "the end of the roll")
        ended, jobs_after = time.monotonic(), self._jobs_done()
        time.sleep(LATE_S)
        succeeded, report = self._checked()
        return Rolled(
            jobs_before=jobs_before,
            jobs_after=jobs_after,
            roll_seconds=ended - began,
            job_succeeded=succeeded,
            report=report,
        )

    def _restart(self) -> None:
        """Roll all pods, as `kubectl rollout restart` does."""
        annotations = {RESTARTED: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        template = {"metadata": {"annotations": annotations}}
        for path in self._paths:
            self._api.patch(path, {"spec": {"template": template}})

    def _checked(self) -> tuple[bool, Report]:
        """Run the example's Job; return whether it succeeded, and its output."""
        (job,) = render(EXAMPLE / "check")
        self._create(job)
        path = at("jobs", NAME, job["metadata"]["name"])

        def ended() -> dict[str, Any]:
            status = self._api.get(path).get("status", {})
            return {key: status[key] for key in ("succeeded", "failed") if status.get(key)}

        self._wait(lambda: bool(ended()), "the end of the check")
        succeeded = ended() == {"succeeded": 1}
        (log,) = self._node.settings.folder.glob("pods/*flights-check*/check.log")
        text = log.read_text(encoding="utf-8")
        try:
            return succeeded, json.loads(text)
        except ValueError:
            raise RuntimeError(f"the check printed no report:\n{text[-2000:]}") from None

    def stop(self) -> None:
        """Delete everything, by force: what the pods have written is read by now."""
        self._api.delete(at("namespaces", name=NAME))  # from here on it takes no new pods
        self._node.kill()
        for pod in self._pods():
            with contextlib.suppress(ApiError):  # gone meanwhile
                self._api.delete(at("pods", NAME, pod["metadata"]["name"]), grace=0)
        self._api.delete(at("nodes", name=NAME))

    # ── observations ────────────────────────────────────────────────────────────────────────

    def _wait(self, is_so: Any, what: str) -> None:
        try:
            wait_for(is_so, TIMEOUT_S, f"the flights: {what}")
        except TimeoutError as error:
            raise TimeoutError(f"{error}; the pods said:\n{self._last_words()}") from None

    def _last_words(self) -> str:
        """Return the last line that each container printed."""
        paths = sorted(self._node.settings.folder.glob("pods/*/*.log"))
        lines = (path.read_text(errors="replace").strip().rpartition("\n")[2] for path in paths)
        return "\n".join(line for line in lines if line)

    def _pods(self) -> list[dict[str, Any]]:
        return self._api.get(at("pods", NAME))["items"]

    def _is_rolled(self) -> bool:
        pods = self._pods()
        return all(is_rolled(one, pods_of(one, pods)) for one in map(self._api.get, self._paths))

    def _are_all_ranked(self) -> bool:
        """Return whether the newest version has each pod in its ranks."""
        events = Tail(self._folder / "events").new()
        versions = [event for event in events if event["what"] == "version"]
        newest = max(versions, key=lambda event: event["number"], default={"ranks": []})
        return {pod["metadata"]["name"] for pod in self._pods()} == set(newest["ranks"])

    def _jobs_done(self) -> int:
        with contextlib.closing(Store(self._folder / "store.db")) as store:
            return store.done()


def pods_of(workload: Manifest, pods: list[Manifest]) -> list[Manifest]:
    """Return the pods that a workload selects."""
    selected = workload["spec"]["selector"]["matchLabels"].items()
    return [pod for pod in pods if selected <= pod["metadata"]["labels"].items()]


def carry_out(cluster: Cluster) -> PartVerdict:
    """Roll the flights once; return what came of it."""
    began = time.monotonic()
    roll = FlightsRoll(cluster)
    try:
        rolled = roll.run()
    finally:
        roll.stop()
    return verdict(rolled, time.monotonic() - began)


def verdict(rolled: Rolled, seconds: float) -> PartVerdict:
    """Return the verdict on a roll.

    `seconds` is how long the whole part took.
    """
    report = rolled.report
    moves, counted = report["moves_per_carrier"], report["flights"]["flights"]
    says = (
        f"{counted:,} flights counted by four pods, two of them in Go, which were rolled once in "
        f"{rolled.roll_seconds:.0f} s, when {rolled.jobs_before:,} to {rolled.jobs_after:,} of "
        f"{report['jobs']:,} jobs were done: {moves['mean']:.2f} moves per role, "
        f"at most {moves['most']}; the check {'succeeded' if rolled.job_succeeded else 'failed'}"
    )
    return PartVerdict(
        name=NAME,
        says=says,
        figures=attrs.asdict(rolled),
        misses=tuple(missed(rolled)),
        seconds=seconds,
    )


def missed(rolled: Rolled) -> list[str]:
    """Return what is not as it should be, in words."""
    report = rolled.report
    misses = [f"{name}: {found}" for name, found in report["faults"].items() if found]
    if not rolled.job_succeeded:
        misses.append("the check's Job failed")
    if report["flights"] != report["expected"]:
        misses.append(f"totals are {report['flights']}, not {report['expected']}")
    if (counted := report["flights"]["flights"]) != FLIGHTS:
        misses.append(f"{counted:,} flights are counted, not {FLIGHTS:,}")
    if (moves := report["moves_per_carrier"]) != {"mean": 1.0, "most": 1}:
        misses.append(f"{moves['mean']:.2f} moves per role, at most {moves['most']}, not one each")
    if not 0 < rolled.jobs_before < rolled.jobs_after < report["jobs"]:
        misses.append(
            f"the roll was not amid the work: {rolled.jobs_before:,} jobs were done before, and "
            f"{rolled.jobs_after:,} of {report['jobs']:,} after it"
        )
    return misses
