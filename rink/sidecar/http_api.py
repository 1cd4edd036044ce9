"""Answer the calls of the API, as an ASGI application."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from rink.sidecar import answers, bodies, json_views, openapi
from rink.sidecar.consumers import Consumer
from rink.sidecar.effects import Granted, SidecarEffect
from rink.sidecar.errors import Refused
from rink.sidecar.event_stream import EventStream, disconnected
from rink.sidecar.membership import Membership
from rink.sidecar.service import LEAVES, Service

MAX_STREAMS = 256
"""The default maximum number of open streams."""
MAX_CALLS = 128
"""The maximum number of holds and drains that wait for their answer."""
MAX_ALL_ROLES = 10_000
"""The maximum number of roles of all consumers together."""

GET, POST = ("GET", "HEAD"), ("POST",)
ApiHandler = Callable[[Request], Awaitable[ASGIApp]]
"""A function that returns the answer to a request: a stream or a response."""

EVENT_STREAM = "text/event-stream"
UNKNOWN_GRANT = "this grant is over, or of an earlier life of the sidecar: hold the roles anew"


class Api:
    """Answer consumers."""

    def __init__(
        self, service: Service, membership: Membership, max_streams: int = MAX_STREAMS
    ) -> None:
        self._service = service
        self._membership = membership
        self._max_streams = max_streams
        self._streams = self._calls = 0  # open streams, and calls that wait
        self._waiting: dict[str, asyncio.Event] = {}
        self._table: dict[str, tuple[tuple[str, ...], ApiHandler]] = {
            "/v1/hold": (POST, self.hold),
            "/v1/renew": (POST, self.renew),
            "/v1/release": (POST, self.release),
            "/v1/role": (GET, self.role),
            "/v1/status": (GET, _view(lambda: json_views.status_fields(service, membership))),
            "/v1/members": (GET, _view(lambda: json_views.member_fields(membership))),
            "/v1/history": (GET, _view(lambda: json_views.history_fields(membership))),
            "/v1/drain": (POST, self.drain),
            "/openapi.json": (GET, _view(lambda: openapi.DOCUMENT)),
        }
        service.on_change.append(self._wake_call)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        An open stream keeps all coroutines of its call in memory. Starlette's routes would add a
        dozen coroutines, so a table replaces the routes.
        """
        response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> ASGIApp:
        methods, call = self._table.get(request.scope["path"], ((), None))
        if call is None:
            return refusal(Refused(404, "there is no such call: see /openapi.json"))
        if request.method not in methods:
            response = refusal(
                Refused(405, "this call needs another HTTP method: see /openapi.json")
            )
            response.headers["allow"] = ", ".join(methods)
            return response
        try:
            return await call(request)
        except Refused as refused:
            return refusal(refused)

    async def hold(self, request: Request) -> ASGIApp:
        """Hold roles: as a stream, or as one answer."""
        hold = bodies.hold_of(await bodies.read(request))
        is_stream = EVENT_STREAM in request.headers.get("accept", "")
        if hold.grant and not is_stream:
            raise Refused(400, f'"grant" resumes a stream: send Accept: {EVENT_STREAM}')
        if is_stream and self._streams >= self._max_streams:
            raise Refused(429, f"all {self._max_streams} streams are in use: raise --max-streams")
        consumer = self._consumer(hold.grant) if hold.grant else self._new_consumer(hold)
        if is_stream:
            if not hold.grant:
                consumer.calls = 1  # until the stream begins
                self._service.hold(consumer, list(hold.roles))
            return self._counted(EventStream(self._service, consumer))
        with self._one_more_call():
            return await self._wait(request, consumer, hold)

    def _counted(self, stream: EventStream) -> ASGIApp:
        """Return a stream that is counted while it is open."""

        async def counted(scope: Scope, receive: Receive, send: Send) -> None:
            self._streams += 1
            try:
                await stream(scope, receive, send)
            finally:
                self._streams -= 1

        return counted

    @contextlib.contextmanager
    def _one_more_call(self) -> Iterator[None]:
        """Count a call while the body runs.

        Raises:
            Refused: too many calls wait.
        """
        if self._calls >= MAX_CALLS:
            raise Refused(429, f"{MAX_CALLS} calls wait already: try again later")
        self._calls += 1
        try:
            yield
        finally:
            self._calls -= 1

    def _new_consumer(self, hold: bodies.HoldRequest) -> Consumer:
        if self._service.draining:
            raise Refused(503, LEAVES)
        if self._service.turns.role_count + len(hold.roles) > MAX_ALL_ROLES:
            raise Refused(429, f"all consumers together may have {MAX_ALL_ROLES:,} roles")
        return Consumer(
            name=hold.consumer,
            grant=secrets.token_urlsafe(24),
            alive_ms=hold.alive_ms,
            releases_on_close=hold.releases_on_close,
        )

    async def _wait(
        self, request: Request, consumer: Consumer, hold: bodies.HoldRequest
    ) -> Response:
        """Wait until a role is granted, or the wait ends.

        The wait ends after its timeout, or if the caller or the sidecar is gone.
        """
        service = self._service
        granted = self._waiting[consumer.grant] = asyncio.Event()
        consumer.calls = 1
        service.hold(consumer, list(hold.roles))
        left = self._membership.left
        gone = asyncio.create_task(disconnected(request.receive))
        waits = [gone, *(asyncio.create_task(event.wait()) for event in (granted, left))]
        try:
            if not consumer.turns and hold.wait_s:
                await asyncio.wait(waits, timeout=hold.wait_s, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:  # cancelled, since the server ends
            service.end_call(consumer, is_answered=False)
            raise
        finally:
            for wait in waits:
                wait.cancel()
            del self._waiting[consumer.grant]
        if consumer.is_forgotten:  # during the wait
            raise Refused(410, UNKNOWN_GRANT)
        if not consumer.turns and left.is_set():
            service.release_all(consumer, "the sidecar has left")
            raise Refused(503, LEAVES)
        if not consumer.turns:
            fields = answers.consumer_fields(service, consumer)
            service.release_all(consumer, "its wait is over")
            return JSONResponse({**fields, "held": []})
        service.end_call(consumer, is_answered=not gone.done() or gone.cancelled())
        return JSONResponse(answers.consumer_fields(service, consumer))

    def _wake_call(self, effect: SidecarEffect) -> None:
        if isinstance(effect, Granted) and (event := self._waiting.get(effect.turn.consumer.grant)):
            event.set()

    async def renew(self, request: Request) -> Response:
        """Renew a grant, and return its held, lost and awaited roles."""
        consumer = self._consumer(bodies.grant_of(await bodies.read(request)))
        self._service.renew(consumer)
        if consumer.is_forgotten:
            raise Refused(410, UNKNOWN_GRANT)
        return JSONResponse(answers.consumer_fields(self._service, consumer))

    async def release(self, request: Request) -> Response:
        """Take the answer to a loss, or the release of a role."""
        body = bodies.release_of(await bodies.read(request))
        consumer = self._consumer(body.grant)
        if not self._service.release(consumer, body.role, body.token):
            raise Refused(409, f"role {json.dumps(body.role)} is not this grant's")
        return Response(status_code=204)

    def _consumer(self, grant: str) -> Consumer:
        consumer = self._service.turns.consumers.get(grant)
        if consumer is None:
            raise Refused(410, UNKNOWN_GRANT)
        return consumer

    async def role(self, request: Request) -> Response:
        """Return whether a role is held here now, without a request to etcd."""
        query = request.query_params
        name = query.get("name", "")
        bodies.check_role(name)
        fields = json_views.role_fields(self._service, self._membership, name)
        status = 404 if "fail" in query and not fields["held"] else 200
        return JSONResponse(fields, status)

    async def drain(self, request: Request) -> Response:
        """Begin to leave for good: 200 after the leave, 202 before.

        The call waits until the member has left, unless too many other calls wait.
        """
        bodies.check_kind(request, "application/json", "")  # a page's form has another type
        wait_s = _wait_of(request)
        self._membership.drain("a caller of the API asked for it")
        with contextlib.suppress(TimeoutError, Refused), self._one_more_call():
            async with asyncio.timeout(wait_s):
                await self._membership.left.wait()
        has_left = self._membership.left.is_set()
        fields = {"left": has_left, "state": self._membership.state.name.lower()}
        return JSONResponse(fields, 200 if has_left else 202)


def _view(fields: Callable[[], dict[str, Any]]) -> ApiHandler:

    async def call(_: Request) -> ASGIApp:
        return JSONResponse(fields())

    return call


def refusal(refused: Refused) -> JSONResponse:
    """Return the answer to a request that is refused."""
    return JSONResponse({"error": str(refused)}, refused.status)


def _wait_of(request: Request) -> float:
    text = request.query_params.get("wait", "0")
    try:
        wait_s = float(text)
    except ValueError:
        wait_s = -1.0
    if not 0 <= wait_s <= bodies.MAX_WAIT_S:
        raise Refused(400, f"wait must be a number of seconds, at most {bodies.MAX_WAIT_S:g}")
    return wait_s
