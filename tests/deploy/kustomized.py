"""Render kustomizations as `kubectl kustomize` does, for tests that have no kubectl.

Only what the bases use of kustomize is supported: `resources`, `configMapGenerator` from files, and
`images`. Anything else is refused by name, so no base can use what a test does not see.
`test_render_equals_kubectl` compares the result with that of the real tool.
"""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

SUPPORTED = {
    "kustomization": {"apiVersion", "kind", "resources", "configMapGenerator", "images"},
    "configMapGenerator": {"name", "files"},
    "images": {"name", "newName", "newTag"},
}
CONFIG_MAP_REFERENCES = {"configMap", "configMapRef", "configMapKeyRef"}


class Unsupported(Exception):  # noqa: N818 - it names what is wrong with the kustomization
    """A kustomization uses something that this renderer does not know."""


def render(folder: Path) -> list[Manifest]:
    """Return the manifests of a kustomization, in no particular order.

    Raises:
        Unsupported: a kustomization uses something else of kustomize; the message names it.
        ValueError: two manifests have the same kind and name.
    """
    manifests, renamed = _accumulate(folder.resolve())
    found: set[tuple[str, str]] = set()
    for manifest in manifests:
        identity = (manifest["kind"], manifest["metadata"]["name"])
        if identity in found:
            raise ValueError(f"{folder}: there are two of {' '.join(identity)}")
        found.add(identity)
        _rename_references(manifest, renamed)
    return manifests


def _accumulate(folder: Path) -> tuple[list[Manifest], dict[str, str]]:
    """Return the manifests of a folder, and the new names of its generated ConfigMaps."""
    path = folder / "kustomization.yaml"
    kustomization = yaml.safe_load(path.read_text(encoding="utf-8"))
    _check(path, "kustomization", kustomization)
    manifests: list[Manifest] = []
    renamed: dict[str, str] = {}
    for resource in kustomization.get("resources", []):
        target = (folder / resource).resolve()
        if target.is_dir():
            more, names = _accumulate(target)
            manifests += more
            renamed |= names
            continue
        _check_inside(folder, target)
        manifests += [one for one in yaml.safe_load_all(target.read_text(encoding="utf-8")) if one]
    for generator in kustomization.get("configMapGenerator", []):
        _check(path, "configMapGenerator", generator)
        made = _config_map(folder, generator)
        renamed[generator["name"]] = made["metadata"]["name"]
        manifests.append(made)
    for image in kustomization.get("images", []):
        _check(path, "images", image)
        for container in (one for manifest in manifests for one in _containers(manifest)):
            _set_image(container, image)
    return manifests, renamed


def _check(path: Path, what: str, given: Manifest) -> None:
    for name in sorted(given.keys() - SUPPORTED[what]):
        raise Unsupported(f"{path}: {name} of {what} is not supported by this renderer")


def _check_inside(folder: Path, target: Path) -> None:
    """Refuse a file of another folder, as kustomize does."""
    if not target.is_relative_to(folder):
        raise Unsupported(f"{folder}: {target} is a file outside of the kustomization")


def _config_map(folder: Path, generator: Manifest) -> Manifest:
    data = {}
    for name in generator["files"]:
        target = (folder / name).resolve()
        _check_inside(folder, target)
        data[target.name] = target.read_text(encoding="utf-8")
    name = f"{generator['name']}-{_hash(data)}"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def _hash(data: dict[str, str]) -> str:
    """Return the hash that kustomize appends to the name of a ConfigMap.

    It is over the JSON as Go writes it. The name in it is empty: kustomize means to put the name
    there, but looks it up where it is not.
    """
    content = {"data": data, "kind": "ConfigMap", "name": ""}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    digest = hashlib.sha256(text.encode()).hexdigest()[:10]
    return digest.translate(str.maketrans("013ae", "ghkmt"))  # no digits and vowels that form words


def _containers(value: Any) -> Iterator[Manifest]:
    """Yield the containers of a manifest, wherever its Pod template is."""
    if isinstance(value, list):
        for one in value:
            yield from _containers(one)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in {"containers", "initContainers"}:
                yield from inner
            else:
                yield from _containers(inner)


def _set_image(container: Manifest, image: Manifest) -> None:
    name, _, tag = container["image"].partition(":")
    if name != image["name"]:
        return
    tag = image.get("newTag", tag)
    container["image"] = image.get("newName", name) + (f":{tag}" if tag else "")


def _rename_references(value: Any, renamed: dict[str, str]) -> None:
    if isinstance(value, list):
        for one in value:
            _rename_references(one, renamed)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key in CONFIG_MAP_REFERENCES and isinstance(inner, dict):
                inner["name"] = renamed.get(inner.get("name"), inner.get("name"))
            _rename_references(inner, renamed)
