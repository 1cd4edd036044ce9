"""Read the manifests of deploy/ and of examples/kubernetes/.

Also read the programs in them.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
from kustomized import Manifest, render

import rink

ROOT = Path(__file__).parents[2]
PACKAGE = Path(rink.__file__).parent

_FOUND = [
    path
    for folder in ("deploy", "examples/kubernetes")
    for path in sorted((ROOT / folder).rglob("kustomization.yaml"))
]
COMPONENTS = [
    path.parent for path in _FOUND if "\nkind: Component\n" in path.read_text(encoding="utf-8")
]
"""Folders that change the manifests of others, and have none of their own."""
KUSTOMIZATIONS = [path.parent for path in _FOUND if path.parent not in COMPONENTS]
FOREIGN = sorted((ROOT / "tests" / "deploy" / "foreign").iterdir())
"""Kustomizations that put the sidecar into manifests as others write them."""

TEMPLATES = {
    "Deployment": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
}
WITHOUT_PODS = {
    "ConfigMap",
    "NetworkPolicy",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "Role",
    "RoleBinding",
    "Service",
    "ServiceAccount",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}


def name_of(folder: Path) -> str:
    """Return the name of a kustomization, for the names of tests."""
    return str(folder.relative_to(ROOT))


@functools.cache
def rendered(folder: Path) -> tuple[Manifest, ...]:
    """Return the manifests of a kustomization."""
    return tuple(render(folder))


@attrs.frozen
class Pods:
    """Hold the Pod template of one manifest.

    Attributes:
        where: the kustomization, the kind and the name, for messages.
        manifest: all of it.
        template: its Pod template.
        beside: the manifests of the same kustomization.
    """

    where: str
    manifest: Manifest
    template: Manifest
    beside: tuple[Manifest, ...]

    @property
    def spec(self) -> Manifest:
        return self.template["spec"]

    @property
    def labels(self) -> dict[str, str]:
        return self.template["metadata"]["labels"]

    @property
    def containers(self) -> list[Manifest]:
        return [*self.spec.get("initContainers", []), *self.spec["containers"]]

    def programs(self, container: Manifest) -> dict[str, str]:
        """Return the mounted files of a container, and the module that it runs.

        The files come from ConfigMaps.
        """
        maps = {one["metadata"]["name"]: one for one in self.beside if one["kind"] == "ConfigMap"}
        volumes = {volume["name"]: volume for volume in self.spec.get("volumes", [])}
        files = {}
        for mount in container.get("volumeMounts", []):
            source = volumes.get(mount["name"], {}).get("configMap")
            if source is not None:
                files |= maps[source["name"]]["data"]
        if container["command"][:2] == ["python", "-m"]:
            name = f"{container['command'][2]}.py"
            files[name] = (ROOT / "examples" / "kubernetes" / name).read_text(encoding="utf-8")
        if container["command"] == ["flights-go"]:
            sources = sorted((ROOT / "examples" / "kubernetes" / "go").glob("*.go"))
            files |= {path.name: path.read_text(encoding="utf-8") for path in sources}
        return files


def pods_of(folder: Path) -> Iterator[Pods]:
    """Yield the Pod templates of a kustomization."""
    for manifest in rendered(folder):
        kind = manifest["kind"]
        if kind in WITHOUT_PODS:
            continue
        template = manifest
        for key in TEMPLATES[kind]:
            template = template[key]
        where = f"{name_of(folder)}: {kind} {manifest['metadata']['name']}"
        yield Pods(where, manifest, template, rendered(folder))


def all_pods() -> list[Pods]:
    """Return the Pod templates of all kustomizations."""
    return [pods for folder in KUSTOMIZATIONS for pods in pods_of(folder)]


def is_rink(container: Manifest) -> bool:
    """Return whether a container joins a group.

    It runs `rink`, or a program with a session.
    """
    env = {one["name"] for one in container.get("env", [])}
    return "RINK_ETCD" in env


def is_sidecar(container: Manifest) -> bool:
    """Return whether a container is the sidecar of others."""
    return container.get("command") == ["rink", "sidecar"]


def env_of(container: Manifest) -> dict[str, Any]:
    """Return the environment of a manifest, with None for a field."""
    return {one["name"]: one.get("value") for one in container.get("env", [])}


def names_in(source: str) -> set[str]:
    """Return the texts in a program that look like environment variables."""
    return {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"[A-Z][A-Z0-9_]+", node.value)
    }


@functools.cache
def names_of_rink(folder: str = "") -> frozenset[str]:
    """Return the environment variables in Rink's sources.

    The sources of the command line are left out.

    The sources of the command line are left out.

    Args:
        folder: of the package, such as `cli`, or "" for all but `cli`.
    """
    return frozenset(
        name
        for path in (PACKAGE / folder).rglob("*.py")
        if folder or "cli" not in path.relative_to(PACKAGE).parts
        for name in names_in(path.read_text(encoding="utf-8"))
    )
