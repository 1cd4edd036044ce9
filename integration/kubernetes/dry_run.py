"""Ask the apiserver whether it accepts the manifests of the project.

These are the manifests of deploy/ and examples/kubernetes/.

The foreign manifests of tests/deploy/foreign, into which the sidecar is patched, are asked for too.

Each manifest is created with `dryRun=All&fieldValidation=Strict`: the apiserver decodes it, sets
defaults, validates and admits it, and stores nothing. It validates the Pod template of a workload,
but nothing else is asked before a pod is made. So each template is tried as a pod, too, in a
namespace that admits only what the Pod Security Standard `restricted` allows.
"""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator
from typing import Any

import attrs
from kube_api import Api, ApiError, at
from kube_cluster import Cluster
from kube_parts import PartVerdict
from manifests import FOREIGN, KUSTOMIZATIONS, Pods, all_pods, name_of, rendered

NAMESPACE = "dry-run"
NAME = "dry-run"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
MISSPELT = "maxSurgeX"
CLUSTER_WIDE = {"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}
"""Kinds without namespaces."""

ASKED = [*KUSTOMIZATIONS, *FOREIGN]

Manifest = dict[str, Any]


@attrs.frozen
class Tried:
    """Hold what the apiserver said of one manifest.

    Attributes:
        where: the kustomization, the kind and the name.
        refusal: its words; None if it accepted the manifest.
    """

    where: str
    refusal: str | None


@contextlib.contextmanager
def restricted_namespace(api: Api) -> Iterator[str]:
    """Create a namespace for restricted pods, until the `with` ends."""
    api.create(at("namespaces"), {"metadata": {"name": NAMESPACE, "labels": RESTRICTED}})
    try:
        yield NAMESPACE
    finally:
        api.delete(at("namespaces", name=NAMESPACE))


def refusal(api: Api, manifest: Manifest, *, validation: str = "Strict") -> str | None:
    """Return the apiserver's reason for refusing a manifest, or None.

    Nothing is stored.

    Args:
        api: the apiserver, with the namespace of `restricted_namespace`.
        manifest: its own namespace is ignored.
        validation: of unknown fields: "Strict" refuses them, "Ignore" drops them.
    """
    path = place_of(manifest)
    meta = {key: value for key, value in manifest["metadata"].items() if key != "namespace"}
    manifest = manifest | {"metadata": meta}
    try:
        api.create(path, manifest, dryRun="All", fieldValidation=validation)
    except ApiError as error:
        return str(error)
    return None


def place_of(manifest: Manifest) -> str:
    """Return the path of all objects of a manifest's kind.

    If the kind has namespaces, the path is in the namespace of the dry run.
    """
    return at(resource_of(manifest), "" if manifest["kind"] in CLUSTER_WIDE else NAMESPACE)


def resource_of(manifest: Manifest) -> str:
    """Return the name of a manifest's kind in paths."""
    return f"{manifest['kind'].lower()}s".replace("ys", "ies")


def manifests() -> list[tuple[str, Manifest]]:
    """Return all manifests of all kustomizations, each with where it stands."""
    return [
        (f"{name_of(folder)}: {manifest['kind']} {manifest['metadata']['name']}", manifest)
        for folder in ASKED
        for manifest in rendered(folder)
    ]


def pod_of(pods: Pods) -> Manifest:
    """Return the pod that a workload's controller would make."""
    name = pods.manifest["metadata"]["name"]
    spec = copy.deepcopy(pods.spec)
    for claim in pods.manifest["spec"].get("volumeClaimTemplates", []):
        volume = claim["metadata"]["name"]
        source = {"claimName": f"{volume}-{name}-0"}
        spec.setdefault("volumes", []).append({"name": volume, "persistentVolumeClaim": source})
    meta = {"name": f"{name}-0", "labels": pods.labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def misspelt_deployment() -> Manifest:
    """Return the Deployment of deploy/deployment with an unknown field."""
    folder = next(one for one in KUSTOMIZATIONS if name_of(one) == "deploy/deployment")
    (manifest,) = (one for one in rendered(folder) if one["kind"] == "Deployment")
    manifest = copy.deepcopy(manifest)
    manifest["spec"]["strategy"] = {"rollingUpdate": {MISSPELT: 1}}
    return manifest


def carry_out(cluster: Cluster) -> PartVerdict:
    """Try all manifests, all pods, and a misspelt manifest.

    Return the verdict.
    """
    began = time.monotonic()
    with restricted_namespace(cluster.api):
        tried = [Tried(where, refusal(cluster.api, one)) for where, one in manifests()]
        pods = [
            Tried(f"a pod of {one.where}", refusal(cluster.api, pod_of(one))) for one in all_pods()
        ]
        misspelt = refusal(cluster.api, misspelt_deployment())
    return verdict(tried, pods, misspelt, time.monotonic() - began)


def verdict(
    tried: list[Tried], pods: list[Tried], misspelt: str | None, seconds: float
) -> PartVerdict:
    """Return the verdict on what the apiserver said.

    Args:
        tried: the manifests.
        pods: the pods of their workloads.
        misspelt: why the manifest with the misspelt field was refused; None if it was not.
        seconds: how long it took.
    """
    misses = [f"{one.where}: {one.refusal}" for one in [*tried, *pods] if one.refusal is not None]
    refused = len(misses)
    if not tried or not pods:
        misses.append("there are no manifests, or no pods")
    if misspelt is None or MISSPELT not in misspelt:
        misses.append(f"the misspelt field {MISSPELT} was not refused by name: {misspelt}")
    says = (
        f"the apiserver was asked for {len(tried)} manifests of {len(ASKED)} "
        f"kustomizations and {len(pods)} pods of theirs: {refused} refused; "
        f"{MISSPELT}: {'accepted' if misspelt is None else 'refused'}"
    )
    figures = {
        "kustomizations": len(ASKED),
        "manifests": [attrs.asdict(one) for one in tried],
        "pods": [attrs.asdict(one) for one in pods],
        "misspelt": misspelt,
    }
    return PartVerdict(name=NAME, says=says, figures=figures, misses=tuple(misses), seconds=seconds)
