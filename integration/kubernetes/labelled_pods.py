"""Create pods with the account of deploy/sidecar/label, and their tokens.

RBAC, account and policy are those of the component, as kustomize renders them. The pods run
nowhere, and the apiserver does not check that. Each token is bound to its pod, as the kubelet asks
for it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import attrs
from dry_run import CLUSTER_WIDE, resource_of
from kube_api import Access, Api, ApiError, at
from kube_cluster import Cluster, wait_for
from manifests import ROOT, rendered

FOLDER = ROOT / "tests" / "deploy" / "foreign" / "leader"
ACCOUNT = "rink-sidecar"
OF_ACCOUNT = {"ServiceAccount", "Role", "RoleBinding"}
LABEL = "etcd-rink/leader"
APP = {"app": "web"}

Manifest = dict[str, Any]


def component(kinds: set[str]) -> list[Manifest]:
    """Return the component's manifests of these kinds."""
    return [one for one in rendered(FOLDER) if one["kind"] in kinds]


def remove_policy(api: Api) -> None:
    """Remove the policy, so that a token may do all that RBAC lets it."""
    for one in component(CLUSTER_WIDE):
        api.delete(at(resource_of(one), name=one["metadata"]["name"]))


@attrs.frozen
class Space:
    """Hold a namespace with the component's account.

    Attributes:
        cluster: its cluster.
        name: the namespace.
    """

    cluster: Cluster
    name: str
    _clients: list[Api] = attrs.field(factory=list, init=False)

    @classmethod
    def made(cls, cluster: Cluster, name: str) -> Space:
        """Create the namespace and the account with its rights."""
        cluster.api.create(at("namespaces"), {"metadata": {"name": name}})
        for one in component(OF_ACCOUNT):
            cluster.api.create(at(resource_of(one), name), one)
        return cls(cluster, name)

    def pod(self, name: str, **metadata: Any) -> Manifest:
        """Create a pod of the account."""
        container = {"name": "main", "image": "registry.example.com/web:1"}
        body = {
            "metadata": {"name": name, "labels": APP, **metadata},
            "spec": {"serviceAccountName": ACCOUNT, "containers": [container]},
        }
        return self.cluster.api.create(at("pods", self.name), body)

    def token(self, pod: Manifest | None) -> str:
        """Return a token of the account, bound to a pod if there is one."""
        spec: Manifest = {"expirationSeconds": 3600}
        if pod is not None:
            meta = pod["metadata"]
            bound = {"apiVersion": "v1", "kind": "Pod", "name": meta["name"], "uid": meta["uid"]}
            spec["boundObjectRef"] = bound
        path = at("serviceaccounts", self.name, ACCOUNT, "token")
        return self.cluster.api.create(path, {"spec": spec})["status"]["token"]

    def api(self, pod: Manifest | None) -> Api:
        """Return a client with a token of the account."""
        access = self.cluster.access
        self._clients.append(Api(Access(access.url, self.token(pod), access.ca)))
        return self._clients[-1]

    def close(self) -> None:
        """Close all clients."""
        for api in self._clients:
            api.close()

    def labels(self, pod: str) -> dict[str, str]:
        """Return the labels of a pod."""
        return self.cluster.api.get(at("pods", self.name, pod))["metadata"].get("labels", {})

    def apply_policy(self, api: Api, pod: Manifest) -> None:
        """Apply the policy, and wait until it holds for a pod's token."""
        for one in component(CLUSTER_WIDE):
            self.cluster.api.create(at(resource_of(one)), one)
        wait_for(lambda: refusal(api, self, pod, annotated()) is not None, 30, "the policy")

    def mount(self, pod: Manifest, folder: Path) -> Path:
        """Write the files that the kubelet mounts, and return their folder."""
        folder.mkdir(exist_ok=True)
        self.rotate(pod, folder)
        (folder / "ca.crt").write_bytes(Path(self.cluster.access.ca).read_bytes())
        (folder / "namespace").write_text(self.name)
        return folder

    def rotate(self, pod: Manifest, folder: Path) -> None:
        """Replace the token, as the kubelet does now and then."""
        (folder / "new").write_text(self.token(pod))
        (folder / "new").rename(folder / "token")


def annotated() -> Manifest:
    """Return a patch with a new annotation, which the policy refuses."""
    return {"metadata": {"annotations": {"a": str(time.monotonic_ns())}}}


def refusal(
    api: Api, space: Space, pod: Manifest, body: Any, kind: str = "merge", **query: str
) -> str | None:
    """Patch a pod, and return why the apiserver refuses it, or None."""
    try:
        api.patch(at("pods", space.name, pod["metadata"]["name"]), body, kind, **query)
    except ApiError as error:
        return f"{error.code}: {error}"
    return None
