"""Answer probes, and show metrics, without any name of a role.

Only the page of `--page` has such names.
"""

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
    """Measure by how much the event loop is late."""

    def __init__(self) -> None:
        self.lag_s = 0.0

    async def run(self) -> None:
        """Measure for ever."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_INTERVAL_S
            await asyncio.sleep(LAG_INTERVAL_S)
            self.lag_s = loop.time() - due

    def why_late(self, margin_s: float) -> str:
        """Return that the loop is late by a margin or more, or ""."""
        return f"the event loop is {self.lag_s:.1f} s late" if self.lag_s >= margin_s else ""


Reason = Callable[[], str]
"""Returns why something is not so, or ""."""
Call = Callable[[Request], Coroutine[Any, Any, Response]]
"""Returns the answer to a request."""


def why_not_ready(service: Service, membership: Membership, joined: bool = False) -> str:
    """Return why the pod should take no traffic, or "".

    A role is never a reason.

    Without a consumer there is nothing to join for. So the sidecar calls a pod ready whose program
    has not begun yet.

    Args:
        service: the turns.
        membership: the member.
        joined: whether not to have joined is a reason, too. Then a program that crashes before it
            asks for a role never makes its pod ready, and a rollout ends no pod in its favor.
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
    metrics: Call,
    joined: Reason | None = None,
    page: Call | None = None,
) -> Starlette:
    """Return the application of the probes and metrics.

    Args:
        ready: returns why the pod is not ready.
        healthy: returns why the process should be started anew.
        metrics: returns the metrics.
        joined: returns why the pod is not ready if it must have joined for that. If it is None,
            `ready` takes its place.
        page: returns the page for people, at `/`. If it is None, there is no page.
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
    app.router.redirect_slashes = False  # it would make a header of the request's Host
    return app


def _answer(why_not: str) -> Response:
    return PlainTextResponse(f"{why_not or 'ok'}\n", 503 if why_not else 200)
