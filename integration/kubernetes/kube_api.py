"""Speak with a kube-apiserver, and pass objects as plain dicts.

`Api` blocks, for tests; `AsyncApi` is for the node. Both raise `ApiError` where the apiserver
refuses. A path is made by `at`:

    api.get(at("deployments", "shop", "web"))
    api.patch(at("deployments", "shop", "web"), {"spec": {"replicas": 6}})
    for event in api.watch(at("pods", "shop")): ...

httpx carries the requests. The official client of Kubernetes has a class for every kind; these
lag behind the version that is tested, and drop fields that they do not know.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import attrs
import httpx

GROUPS = {
    "apps": ("deployments", "replicasets", "statefulsets", "controllerrevisions"),
    "batch": ("jobs", "cronjobs"),
    "policy": ("poddisruptionbudgets",),
    "networking.k8s.io": ("networkpolicies",),
    "coordination.k8s.io": ("leases",),
    "rbac.authorization.k8s.io": ("roles", "rolebindings"),
    "admissionregistration.k8s.io": (
        "validatingadmissionpolicies", "validatingadmissionpolicybindings",
    ),
}  # fmt: skip
CORE = (
    "pods", "nodes", "namespaces", "events", "configmaps", "secrets", "services",
    "persistentvolumeclaims", "serviceaccounts",
)  # fmt: skip
PREFIXES = dict.fromkeys(CORE, "/api/v1") | {
    kind: f"/apis/{group}/v1" for group, kinds in GROUPS.items() for kind in kinds
}
PATCHES = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
TIMEOUT_S = 30.0
AGAIN_S = 0.2


class ApiError(RuntimeError):
    """Say what the apiserver refused.

    Attributes:
        code: the HTTP status, such as 404 or 409.
        reason: the apiserver's word for it, such as "NotFound".
    """

    def __init__(self, what: str, code: int, reason: str, message: str) -> None:
        super().__init__(f"{what}: {code} {reason}: {message}")
        self.code = code
        self.reason = reason


@attrs.frozen
class Access:
    """Hold what a client needs to reach an apiserver.

    Attributes:
        url: where it answers.
        token: a bearer token.
        ca: the certificate that signed the apiserver's.
    """

    url: str
    token: str
    ca: str

    def options(self) -> dict[str, Any]:
        """Return the arguments of an httpx client."""
        return {
            "base_url": self.url,
            "headers": {"Authorization": f"Bearer {self.token}", "Accept": "application/json"},
            "verify": ssl.create_default_context(cafile=self.ca),
            "timeout": TIMEOUT_S,
            "limits": httpx.Limits(max_connections=None),
            "trust_env": False,  # a proxy of the environment does not know our loopback
        }

    def kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig and return its path.

        A kubeconfig is YAML and therefore may be JSON.
        """
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": self.url, "certificate-authority": self.ca}}
            ],
            "users": [{"name": "u", "user": {"token": self.token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(config))
        return path


def at(kind: str, namespace: str = "", name: str = "", sub: str = "") -> str:
    """Return the path of a resource; without a name, of all of its kind there."""
    within = f"/namespaces/{namespace}" if namespace else ""
    rest = "".join(f"/{part}" for part in (name, sub) if part)
    return f"{PREFIXES[kind]}{within}/{kind}{rest}"


def delete_options(grace: int | None, uid: str | None) -> dict[str, Any]:
    """Return the body of a delete. Objects that it owns are deleted after it."""
    options: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1"}
    options["propagationPolicy"] = "Background"
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if uid is not None:
        options["preconditions"] = {"uid": uid}
    return options


def checked(response: httpx.Response) -> Any:
    """Return what the apiserver answered; raise its refusal."""
    if response.is_success:
        return response.json()
    what = f"{response.request.method} {response.request.url.path}"
    try:
        said = response.json()
    except ValueError:
        said = {"reason": "", "message": response.text[:500]}
    raise ApiError(what, response.status_code, said.get("reason", ""), said.get("message", ""))


def watch_query(since: str, query: dict[str, str]) -> dict[str, str]:
    """Return the query of a watch that begins after a resource version."""
    return {**query, "watch": "1", "resourceVersion": since, "allowWatchBookmarks": "true"}


class Api:
    """Call the apiserver, and block. Safe from any thread.

    Each thread has connections of its own. With one pool for all threads, a connection that one
    thread closed as too long idle was now and then in use by another one (httpx 0.28).
    """

    def __init__(self, access: Access) -> None:
        self._access = access
        self._own = threading.local()
        self._all: list[httpx.Client] = []

    @property
    def _client(self) -> httpx.Client:
        if not hasattr(self._own, "client"):
            self._own.client = httpx.Client(**self._access.options())
            self._all.append(self._own.client)
        return self._own.client

    def close(self) -> None:
        """Close the connections of all threads."""
        for client in self._all:
            client.close()

    def get(self, path: str, **query: str) -> Any:
        """Return an object, or a list of them with its `items`."""
        return checked(self._client.get(path, params=query))

    def create(self, path: str, body: dict[str, Any], **query: str) -> Any:
        """Create an object, or a subresource such as an eviction."""
        return checked(self._client.post(path, json=body, params=query))

    def patch(
        self, path: str, body: dict[str, Any] | list[Any], kind: str = "strategic", **query: str
    ) -> Any:
        """Change parts of an object."""
        headers = {"Content-Type": PATCHES[kind]}
        content = json.dumps(body)
        return checked(self._client.patch(path, content=content, headers=headers, params=query))

    def delete(self, path: str, *, grace: int | None = None, uid: str | None = None) -> Any:
        """Delete an object, and what it owns after it."""
        body = delete_options(grace, uid)
        return checked(self._client.request("DELETE", path, json=body))

    def watch(self, path: str, since: str, **query: str) -> Iterator[dict[str, Any]]:
        """Yield the events after a resource version.

        The apiserver ends the watch.
        """
        timeout = httpx.Timeout(TIMEOUT_S, read=None)
        params = watch_query(since, query)
        with self._client.stream("GET", path, params=params, timeout=timeout) as response:
            if not response.is_success:
                response.read()
                checked(response)
            for line in response.iter_lines():
                yield json.loads(line)


class AsyncApi:
    """Call the apiserver on asyncio, with the calls that a node needs."""

    def __init__(self, access: Access) -> None:
        self._client = httpx.AsyncClient(**access.options())

    async def get(self, path: str, **query: str) -> Any:
        """Return an object, or a list of them with its `items`."""
        return await self._send("GET", path, params=query)

    async def create(self, path: str, body: dict[str, Any]) -> Any:
        """Create an object."""
        return await self._send("POST", path, json=body)

    async def patch(self, path: str, body: dict[str, Any], kind: str = "strategic") -> Any:
        """Change parts of an object."""
        headers = {"Content-Type": PATCHES[kind]}
        return await self._send("PATCH", path, content=json.dumps(body), headers=headers)

    async def delete(self, path: str, *, grace: int | None = None, uid: str | None = None) -> Any:
        """Delete an object."""
        return await self._send("DELETE", path, json=delete_options(grace, uid))

    async def _send(self, method: str, path: str, **more: Any) -> Any:
        """Send a request until it is answered.

        Each request of a node may safely come twice.
        """
        while True:
            try:
                return checked(await self._client.request(method, path, **more))
            except httpx.TransportError:
                await asyncio.sleep(AGAIN_S)

    async def watch(self, path: str, since: str, **query: str) -> AsyncIterator[dict[str, Any]]:
        """Yield the events after a resource version.

        The apiserver ends the watch.
        """
        timeout = httpx.Timeout(TIMEOUT_S, read=None)
        params = watch_query(since, query)
        async with self._client.stream("GET", path, params=params, timeout=timeout) as response:
            if not response.is_success:
                await response.aread()
                checked(response)
            async for line in response.aiter_lines():
                yield json.loads(line)
