"""Render kustomizations as `kubectl kustomize`, for tests without kubectl.

Only what the bases use of kustomize is supported: `resources`, `components`, `configMapGenerator`,
`patches` of kinds, and `images`. Anything else is refused by name, so no base can use what a test
does not see. `test_render_equals_kubectl` compares the result with that of the real tool.
"""

import copy
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]

SUPPORTED = {
    "kustomization": {
        "apiVersion",
        "kind",
        "resources",
        "components",
        "configMapGenerator",
        "patches",
        "images",
    },
    "configMapGenerator": {"name", "namespace", "files", "literals"},
    "patches": {"path", "target"},
    "target of patches": {"kind"},
    "images": {"name", "newName", "newTag"},
}
CONFIG_MAP_REFERENCES = {"configMap", "configMapRef", "configMapKeyRef"}
MERGED_BY = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
}
"""The lists that a patch merges, and the field by which it finds an element. It replaces others."""


class Unsupported(Exception):  # noqa: N818 - it names what is wrong with the kustomization
    """A kustomization uses something that this renderer does not know."""


def render(folder: Path) -> list[Manifest]:
    """Return the manifests of a kustomization, in no particular order.

    Raises:
        Unsupported: a kustomization uses something else of kustomize; the message names it.
        ValueError: two manifests have the same kind and name.
    """
    manifests, renamed = _accumulate(folder.resolve(), [], {})
    found: set[tuple[str, str]] = set()
    for manifest in manifests:
        identity = (manifest["kind"], manifest["metadata"]["name"])
        if identity in found:
            raise ValueError(f"{folder}: there are two of {' '.join(identity)}")
        found.add(identity)
        namespace = manifest["metadata"].get("namespace")
        names = {old: new for (space, old), new in renamed.items() if space == namespace}
        _rename_references(manifest, names)
    return manifests


Renamed = dict[tuple[str | None, str], str]
"""The new names of generated ConfigMaps, by namespace and name.

References do not cross namespaces.
"""


def _accumulate(
    folder: Path, manifests: list[Manifest], renamed: Renamed
) -> tuple[list[Manifest], Renamed]:
    """Return the manifests of a folder, and its renamed ConfigMaps.

    A component begins with the manifests of the kustomization that names it, and changes them.
    Other kustomizations begin without manifests.
    """
    path = folder / "kustomization.yaml"
    kustomization = yaml.safe_load(path.read_text(encoding="utf-8"))
    _check(path, "kustomization", kustomization)
    for resource in kustomization.get("resources", []):
        target = (folder / resource).resolve()
        if target.is_dir():
            more, names = _accumulate(target, [], {})
            manifests += more
            renamed |= names
            continue
        _check_inside(folder, target)
        manifests += [one for one in yaml.safe_load_all(target.read_text(encoding="utf-8")) if one]
    for component in kustomization.get("components", []):
        manifests, renamed = _accumulate((folder / component).resolve(), manifests, renamed)
    for generator in kustomization.get("configMapGenerator", []):
        _check(path, "configMapGenerator", generator)
        made = _config_map(folder, generator)
        renamed[generator.get("namespace"), generator["name"]] = made["metadata"]["name"]
        manifests.append(made)
    for patch in kustomization.get("patches", []):
        _check(path, "patches", patch)
        _check(path, "target of patches", patch["target"])
        manifests = [_patched(folder, patch, manifest) for manifest in manifests]
    for image in kustomization.get("images", []):
        _check(path, "images", image)
        for container in (one for manifest in manifests for one in _containers(manifest)):
            _set_image(container, image)
    return manifests, renamed


def _patched(folder: Path, patch: Manifest, manifest: Manifest) -> Manifest:
    """Return a manifest with a patch, ignoring its own kind and name."""
    if not re.fullmatch(patch["target"]["kind"], manifest["kind"]):
        return manifest
    target = (folder / patch["path"]).resolve()
    _check_inside(folder, target)
    change = yaml.safe_load(target.read_text(encoding="utf-8"))
    change = {key: value for key, value in change.items() if key not in {"apiVersion", "kind"}}
    del change["metadata"]["name"]
    return _merged(manifest, change)


def _merged(old: Manifest, change: Manifest) -> Manifest:
    """Return an object with the fields of a strategic merge patch."""
    new = dict(old)
    for key, value in change.items():
        if isinstance(value, dict):
            new[key] = _merged(old.get(key) or {}, value)
        elif key in MERGED_BY:
            new[key] = _merged_list(old.get(key) or [], value, MERGED_BY[key])
        else:
            new[key] = copy.deepcopy(value)
    return new


def _merged_list(old: list[Manifest], changes: list[Manifest], by: str) -> list[Manifest]:
    """Return a list with the elements of a patch before all others."""
    known = {one[by]: one for one in old}
    merged = [_merged(known.get(one[by], {}), one) for one in changes]
    changed = {one[by] for one in changes}
    return merged + [one for one in old if one[by] not in changed]


def _check(path: Path, what: str, given: Manifest) -> None:
    for name in sorted(given.keys() - SUPPORTED[what]):
        raise Unsupported(f"{path}: {name} of {what} is not supported by this renderer")


def _check_inside(folder: Path, target: Path) -> None:
    """Refuse a file of another folder, as kustomize does."""
    if not target.is_relative_to(folder):
        raise Unsupported(f"{folder}: {target} is a file outside of the kustomization")


def _config_map(folder: Path, generator: Manifest) -> Manifest:
    data = dict(literal.split("=", 1) for literal in generator.get("literals", []))
    for name in generator.get("files", []):
        target = (folder / name).resolve()
        _check_inside(folder, target)
        data[target.name] = target.read_text(encoding="utf-8")
    meta = {"name": f"{generator['name']}-{_hash(data)}"}
    if "namespace" in generator:
        meta["namespace"] = generator["namespace"]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def _hash(data: dict[str, str]) -> str:
    """Return the hash that kustomize appends to the name of a ConfigMap.

    It is over the JSON as Go writes it. The name in the JSON is empty, as in kustomize.
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
