"""Register a node, follow its pods, and start and end them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from pathlib import Path
from typing import Any

import attrs
import httpx
from kube_api import Access, ApiError, AsyncApi, at
from network import Branch, Party

from kubenode.container import Place
from kubenode.node_journal import Journal
from kubenode.pod import Pod
from kubenode.pod_status import moment

NETWORKS = 63
"""Most pods that can have their own network namespace at once."""
WATCH_AGAIN_S = 0.2


@attrs.frozen(kw_only=True)
class Settings:
    """Hold what a node is started with.

    Attributes:
        name: the node's.
        access: to the apiserver.
        folder: of its pods, and of its journal.
        branch: where its pods' network namespaces are; None is the host's network.
        host_ip: its address, as pods reach it.
        start_delay: the least and the most seconds until a pod's first container starts.
        seed: of the random choice between them.
        backoff_factor: 1 is the kubelet's time between restarts, less is faster.
        image_env: the variables that an image would set.
    """

    name: str
    access: Access
    folder: Path
    branch: Branch | None = None
    host_ip: str = "127.0.0.1"
    start_delay: tuple[float, float] = (0.0, 0.0)
    seed: int = 0
    backoff_factor: float = 1.0
    image_env: dict[str, str] = attrs.field(factory=dict)

    def as_json(self) -> str:
        """Return them as the node's process takes them."""
        return json.dumps(attrs.asdict(self) | {"folder": str(self.folder)})

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Return the settings that `as_json` wrote."""
        raw = json.loads(text)
        raw["access"] = Access(**raw["access"])
        raw["branch"] = Branch(**raw["branch"]) if raw["branch"] else None
        return cls(
            **raw | {"folder": Path(raw["folder"]), "start_delay": tuple(raw["start_delay"])}
        )


class Node:
    """Run a node until it is cancelled; then kill its containers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._api = AsyncApi(settings.access)
        self._journal = Journal(settings.folder / "journal.jsonl")
        self._random = random.Random(settings.seed)
        self._pods: dict[str, Pod] = {}
        self._numbers = list(reversed(range(NETWORKS)))
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Register, and follow the pods."""
        if self._settings.branch is not None:
            self._settings.branch.clear()
        await self._register()
        pods, mine = at("pods"), {"fieldSelector": f"spec.nodeName={self._settings.name}"}
        while True:
            with contextlib.suppress(ApiError, httpx.HTTPError):
                listed = await self._api.get(pods, **mine)
                self._relisted(listed["items"])
                since = listed["metadata"]["resourceVersion"]
                async for event in self._api.watch(pods, since, **mine):
                    if event["type"] == "ERROR":  # such as a version that is compacted away
                        break
                    self._take(event["type"], event["object"])
            await asyncio.sleep(WATCH_AGAIN_S)

    async def _register(self) -> None:
        name = self._settings.name
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        }
        try:
            await self._api.create(at("nodes"), body)
        except ApiError as error:
            if error.code != 409:  # it is known from an earlier life
                raise
        room = {"cpu": "64", "memory": "256Gi", "pods": "500"}
        ready = {"type": "Ready", "status": "True", "reason": "NodeRuns", "message": ""}
        times = {"lastHeartbeatTime": moment(), "lastTransitionTime": moment()}
        addresses = [{"type": "InternalIP", "address": self._settings.host_ip}]
        status = {
            "capacity": room,
            "allocatable": room,
            "addresses": addresses,
            "conditions": [ready | times],
        }
        await self._api.patch(f"{at('nodes', name=name)}/status", {"status": status})

    def _relisted(self, items: list[dict[str, Any]]) -> None:
        here = {item["metadata"]["uid"] for item in items}
        for item in items:
            self._take("ADDED", item)
        for uid in self._pods.keys() - here:
            self._pods[uid].end(self._pods[uid].grace)

    def _take(self, kind: str, obj: dict[str, Any]) -> None:
        if kind == "BOOKMARK":
            return
        meta = obj["metadata"]
        pod, grace = self._pods.get(meta["uid"]), meta.get("deletionGracePeriodSeconds")
        if kind == "DELETED":
            if pod is not None:  # deleted by force, or we did it
                pod.end(pod.grace)
        elif grace is not None:
            if pod is None:
                pod = self._pods[meta["uid"]] = self._made(obj)
            pod.end(grace)
        elif pod is None and obj.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
            self._pods[meta["uid"]] = self._made(obj)

    def _made(self, obj: dict[str, Any]) -> Pod:
        meta, settings = obj["metadata"], self._settings
        self._journal.note("taken", meta["name"])
        folder = settings.folder / "pods" / f"{meta['namespace']}_{meta['name']}_{meta['uid'][:8]}"
        number = None
        party = Party(settings.host_ip, ())
        if settings.branch is not None and not obj["spec"].get("hostNetwork"):
            number = self._numbers.pop()
            party = settings.branch.add(number)
        place = Place(
            folder=folder,
            prefix=party.command,
            ip=party.address,
            host_ip=settings.host_ip,
            journal=self._journal,
            backoff_factor=settings.backoff_factor,
            image_env=settings.image_env,
        )
        start_delay = self._random.uniform(*settings.start_delay)
        pod = Pod(obj, self._api, place, start_delay)
        task = asyncio.create_task(self._until_removed(pod, number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return pod

    async def _until_removed(self, pod: Pod, number: int | None) -> None:
        await pod.ended()
        del self._pods[pod.uid]
        if number is not None and self._settings.branch is not None:
            self._settings.branch.remove(number)
            self._numbers.insert(0, number)


def main(text: str) -> None:
    """Run a node with the settings that `Settings.as_json` wrote."""
    settings = Settings.from_json(text)
    settings.folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(Node(settings).run())
