"""Hand a role over between two pods, and measure their labels.

Two sidecars, each a process with the token of its pod, label their pods on the real apiserver. The
holder gets SIGTERM, and is started again once it has ended. All the time, the apiserver is asked
which pods have the label.
"""

from __future__ import annotations

import contextlib
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import attrs
from kube_api import Api, at
from kube_cluster import Cluster, wait_for
from kube_parts import PartVerdict
from labelled_pods import LABEL, Space, remove_policy
from pod_labels import LabelledSidecar, in_pod

NAME = "label"
HAND_OVERS = 10
MAX_GAP_S = 2.0
"""Largest allowed time without a label in a hand-over."""
ROLE = "leader"
OPTIONS = (
    "--ttl", "9", "--hold", "3", "--grace", "5",
    "--rebalance-delay", "0.2", "--handover-wait", "20",
)  # fmt: skip
RENEW_INTERVAL_S = 0.1


@attrs.frozen
class Seen:
    """Hold the answer of the apiserver to one question.

    Attributes:
        at_s: when it was asked.
        pods: the pods with the label.
    """

    at_s: float
    pods: frozenset[str]


class Watcher(threading.Thread):
    """Ask the apiserver all the time which pods have the label."""

    def __init__(self, api: Api, namespace: str) -> None:
        super().__init__(name="watcher of labels", daemon=True)
        self._api, self._path = api, at("pods", namespace)
        self.ended = threading.Event()
        self.seen: list[Seen] = []

    def run(self) -> None:
        """Ask until `ended`."""
        while not self.ended.wait(0.005):
            began = time.monotonic()
            items = self._api.get(self._path, labelSelector=LABEL)["items"]
            self.seen.append(Seen(began, frozenset(one["metadata"]["name"] for one in items)))

    def holder(self) -> str:
        """Return the only pod that has the label now, or ""."""
        pods = self.seen[-1].pods if self.seen else frozenset()
        return next(iter(pods)) if len(pods) == 1 else ""


class Program(threading.Thread):
    """Be a program beside a sidecar: hold the role, and answer a loss at once."""

    def __init__(self, sidecar: LabelledSidecar) -> None:
        super().__init__(name=f"program beside {sidecar.name}", daemon=True)
        self._sidecar = sidecar
        self.ended = threading.Event()

    def run(self) -> None:
        """Hold and renew until the sidecar ends."""
        with contextlib.suppress(OSError, ValueError):  # the sidecar has ended
            grant = ""
            while not self.ended.wait(RENEW_INTERVAL_S):
                if grant:
                    status, said = self._sidecar.call("POST", "/v1/renew", {"grant": grant})
                else:
                    body = {"roles": [ROLE], "wait": 30, "alive": 5}
                    status, said = self._sidecar.call("POST", "/v1/hold", body)
                held = said["held"] if status == 200 else []
                grant = held[0]["grant"] if held else ""
                for one in held:
                    if one["state"] == "lost":
                        answer = {key: one[key] for key in ("grant", "role", "token")}
                        self._sidecar.call("POST", "/v1/release", answer)


class Pair:
    """Start and end two pods, each with a sidecar and its program."""

    def __init__(self, space: Space, folder: Path) -> None:
        self._space, self._folder = space, folder
        self._etcd = space.cluster.etcd().endpoint
        self._sidecars = {name: self._sidecar(name) for name in ("web-0", "web-1")}
        self._programs: dict[str, Program] = {}

    def _sidecar(self, name: str) -> LabelledSidecar:
        url = urlsplit(self._space.cluster.access.url)
        assert url.hostname
        assert url.port
        mounted = self._space.mount(self._space.pod(name), self._folder / name)
        environment = in_pod(url.hostname, url.port, name, self._space.name)
        more = (self._folder, name, self._etcd, "label/")
        return LabelledSidecar(environment, mounted, *more, options=OPTIONS)

    def start(self, *names: str) -> None:
        """Start the sidecars and programs of these pods, or of both pods."""
        for name in names or self._sidecars:
            self._programs[name] = Program(self._sidecars[name].start())
            self._programs[name].start()

    def end(self, name: str) -> None:
        """End a sidecar in order, and its program after it."""
        process = self._sidecars[name].process
        process.terminate()
        process.wait(60)
        self._programs[name].ended.set()
        self._programs[name].join()

    def are_ready(self) -> bool:
        """Return whether both sidecars are in the group, and it is settled."""
        for sidecar in self._sidecars.values():
            group = sidecar.call("GET", "/v1/status")[1]["group"]
            if group is None or len(group["members"]) < 2 or not group["settled"]:
                return False
        return True

    def close(self) -> None:
        """Kill both sidecars."""
        for sidecar in self._sidecars.values():
            sidecar.kill()


def carry_out(cluster: Cluster) -> PartVerdict:
    """Hand the role over, and return the verdict on the labels."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, _space(cluster) as space:
        watcher, pair = Watcher(cluster.api, space.name), Pair(space, Path(folder))
        try:
            pair.start()
            watcher.start()
            for _ in range(HAND_OVERS):
                wait_for(lambda: pair.are_ready() and watcher.holder(), 60, "a settled pair")
                holder = watcher.holder()
                pair.end(holder)
                pair.start(holder)
            wait_for(lambda: pair.are_ready() and watcher.holder(), 60, "the last label")
        finally:
            watcher.ended.set()
            watcher.join()
            pair.close()
    return verdict(watcher.seen, time.monotonic() - began)


@contextlib.contextmanager
def _space(cluster: Cluster) -> Iterator[Space]:
    space = Space.made(cluster, "label-part")
    pod = space.pod("asks")
    space.apply_policy(space.api(pod), pod)
    try:
        yield space
    finally:
        remove_policy(cluster.api)
        space.close()


def verdict(seen: list[Seen], seconds: float) -> PartVerdict:
    """Return the verdict on the labels.

    Args:
        seen: the answers of the apiserver, in their order.
        seconds: how long the part took.
    """
    gaps: list[float] = []
    twice, last = 0, None
    for one in seen:
        twice += len(one.pods) > 1
        if not one.pods:
            continue
        if last is not None and one.pods != last.pods:
            gaps.append(round(one.at_s - last.at_s, 3))
        last = one
    misses = []
    if len(gaps) < HAND_OVERS:
        misses.append(f"{len(gaps)} hand-overs were seen, and {HAND_OVERS} were made")
    if gaps and max(gaps) > MAX_GAP_S:
        misses.append(
            f"no pod had the label for {max(gaps):.2f} s, at most {MAX_GAP_S:g} s allowed"
        )
    if twice:
        misses.append(f"two pods had the label in {twice} of {len(seen)} answers")
    middle = sorted(gaps)[len(gaps) // 2] if gaps else 0.0
    says = (
        f"the label moved {len(gaps)} times between two pods; without it were "
        f"{middle:.2f} s in the median and {max(gaps, default=0.0):.2f} s at most; two pods had it "
        f"in {twice} of {len(seen)} answers of the apiserver"
    )
    figures = {"gaps_s": gaps, "answers": len(seen), "twice": twice}
    return PartVerdict(name=NAME, says=says, figures=figures, misses=tuple(misses), seconds=seconds)
