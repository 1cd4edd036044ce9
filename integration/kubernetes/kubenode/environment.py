"""Compute the environment and the command from the pod's spec."""

from __future__ import annotations

import re
from typing import Any

REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
KEYED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


class UnsupportedError(Exception):
    """Say that this node lacks what a spec asks for."""


def field(pod: dict[str, Any], status: dict[str, str], path: str) -> str:
    """Return a field of the downward API.

    Args:
        pod: the pod as the apiserver has it.
        status: podIP and hostIP, which the node knows first.
        path: such as "metadata.name".
    """
    meta, spec = pod["metadata"], pod["spec"]
    if keyed := KEYED.fullmatch(path):
        return str(meta.get(keyed[1], {}).get(keyed[2], ""))
    match path:
        case "metadata.name" | "metadata.namespace" | "metadata.uid":
            return str(meta[path.partition(".")[2]])
        case "metadata.labels" | "metadata.annotations":
            listed = meta.get(path.partition(".")[2], {})
            return "\n".join(f'{key}="{value}"' for key, value in sorted(listed.items()))
        case "spec.nodeName" | "spec.serviceAccountName":
            return str(spec.get(path.partition(".")[2], ""))
        case "status.podIP" | "status.podIPs":
            return status["podIP"]
        case "status.hostIP" | "status.hostIPs":
            return status["hostIP"]
    raise UnsupportedError(f"this node does not know the field {path}")


def expanded(text: str, known: dict[str, str]) -> str:
    """Return a text with `$(NAME)` replaced, as Kubernetes does.

    `$$` is one `$`.
    """

    def value(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else known.get(match[1], match[0])

    return REFERENCE.sub(value, text)


def variables(
    container: dict[str, Any], pod: dict[str, Any], status: dict[str, str]
) -> dict[str, str]:
    """Return the variables of a container's `env`.

    A value may use those before it.
    """
    if container.get("envFrom"):
        raise UnsupportedError("this node has no ConfigMaps and no Secrets: envFrom")
    known: dict[str, str] = {}
    for entry in container.get("env", []):
        source = entry.get("valueFrom", {})
        if not source:
            known[entry["name"]] = expanded(entry.get("value", ""), known)
        elif "fieldRef" in source:
            known[entry["name"]] = field(pod, status, source["fieldRef"]["fieldPath"])
        else:
            raise UnsupportedError(f"this node cannot take {entry['name']} from {sorted(source)}")
    return known


def command(container: dict[str, Any], known: dict[str, str]) -> list[str]:
    """Return what the container runs."""
    if not container.get("command"):
        raise UnsupportedError(
            f"container {container['name']} has no command, and this node has no images"
        )
    words = [*container["command"], *container.get("args", [])]
    return [expanded(word, known) for word in words]
