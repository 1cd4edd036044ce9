"""Answer probes and show metrics, without names of roles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from rink.sidecar.membership import Membership, MembershipState
from rink.sidecar.service import Service

LAG_INTERVAL_S = 0.5


class LoopLag:
    """Measure the lag of the event loop."""

    def __init__(self) -> None:
        self.lag_s = 0.0

    async def run(self) -> None:
        """Measure the lag forever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_INTERVAL_S
            await asyncio.sleep(LAG_INTERVAL_S)
            self.lag_s = loop.time() - due

    def why_late(self, margin_s: float) -> str:
        """Return the lag in words if it reaches a margin, or ""."""
        return f"the event loop is {self.lag_s:.1f} s late" if self.lag_s >= margin_s else ""


Reason = Callable[[], str]
"""A function that returns why a condition does not hold, or ""."""
PublicHandler = Callable[[Request], Coroutine[Any, Any, Response]]
"""A function that returns the answer to a request."""


def why_not_ready(service: Service, membership: Membership, joined: bool = False) -> str:
    """Return why the pod should take no traffic, or "".

    A role that is not held is never a reason. Without a consumer, the sidecar has no reason to
    join. So a pod whose program has not begun yet is ready. With `joined`, the pod must have joined
    to be ready. Then a program that crashes before it asks for a role never makes its pod ready,
    and a rollout does not end an old pod.
    """
    if service.draining:
        return f"draining: {service.draining}"
    if not (joined or membership.has_consumers):
        return ""
    if membership.state is not MembershipState.JOINED:
        return f"{membership.state.value}" + (membership.trouble and f": {membership.trouble}")
    if membership.session()[1] <= service.clock():
        return "the session is lost"
    return ""


def application(
    ready: Reason,
    healthy: Reason,
    metrics: PublicHandler,
    joined: Reason | None = None,
    page: PublicHandler | None = None,
) -> Starlette:
    """Return the application of the probes and metrics.

    `joined` returns why the pod is not ready if it must have joined. Without it, `ready` is used.
    The page for people is at `/`.
    """

    async def startz(_: Request) -> Response:
        return PlainTextResponse("listening\n")

    async def healthz(_: Request) -> Response:
        return _answer(healthy())

    async def readyz(request: Request) -> Response:
        why_not = joined if joined and "joined" in request.query_params else ready
        return _answer(why_not())

    calls = {"/startz": startz, "/healthz": healthz, "/readyz": readyz, "/metrics": metrics}
    if page is not None:
        calls["/"] = page
    app = Starlette(routes=[Route(path, call, methods=["GET"]) for path, call in calls.items()])
    app.router.redirect_slashes = False  # a redirect would repeat the request's Host
    return app


def _answer(why_not: str) -> Response:
    return PlainTextResponse(f"{why_not or 'ok'}\n", 503 if why_not else 200)
