"""Run the handlers of probes and hooks.

They are exec, httpGet, tcpSocket and sleep.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Any, Protocol

import httpx


class Target(Protocol):
    """Name what a handler needs of a container."""

    spec: dict[str, Any]
    ip: str

    async def spawn(self, words: list[str], *, quiet: bool) -> asyncio.subprocess.Process:
        """Start a process beside the container's own."""
        ...


async def handle(target: Target, handler: dict[str, Any], timeout: float) -> bool:
    """Return whether a handler succeeded within `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            if "exec" in handler:
                return await succeeds(target, handler["exec"]["command"])
            if "httpGet" in handler:
                return await answers(target, handler["httpGet"])
            if "tcpSocket" in handler:
                return await connects(target, handler["tcpSocket"])
            if "sleep" in handler:
                await asyncio.sleep(handler["sleep"]["seconds"])
                return True
    except (TimeoutError, OSError, httpx.HTTPError):
        return False
    return False  # grpc, which this node lacks: a probe that never succeeds is noticed


async def succeeds(target: Target, words: list[str]) -> bool:
    """Return whether a command in the container ends with status 0.

    The command is killed if this call is cancelled.
    """
    process = await target.spawn(words, quiet=True)
    try:
        return await process.wait() == 0
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


async def answers(target: Target, get: dict[str, Any]) -> bool:
    """Return whether the container answers a GET with status 200 to 399."""
    scheme, host = get.get("scheme", "HTTP").lower(), get.get("host") or target.ip
    headers = {header["name"]: header["value"] for header in get.get("httpHeaders", [])}
    url = f"{scheme}://{host}:{port(target, get['port'])}{get.get('path', '/')}"
    async with httpx.AsyncClient(verify=False, trust_env=False, timeout=None) as client:
        response = await client.get(url, headers=headers, follow_redirects=False)
    return 200 <= response.status_code < 400


async def connects(target: Target, socket: dict[str, Any]) -> bool:
    """Return whether the container accepts a connection."""
    host = socket.get("host") or target.ip
    _, writer = await asyncio.open_connection(host, port(target, socket["port"]))
    writer.close()
    return True


def port(target: Target, named: int | str) -> int:
    """Return the number of a port, which may be given by its name."""
    for entry in target.spec.get("ports", []):
        if entry.get("name") == named:
            return int(entry["containerPort"])
    return int(named)
