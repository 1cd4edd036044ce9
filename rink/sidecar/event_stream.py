"""Send a consumer's events as an ASGI response (text/event-stream)."""

from __future__ import annotations

import asyncio
import json
import logging

import attrs
from starlette.types import Receive, Scope, Send

from rink.sidecar.answers import EventWriter
from rink.sidecar.consumers import Consumer
from rink.sidecar.service import Service, ServiceInbox

IDLE_INTERVAL_S = 15.0
"""Seconds after which an idle stream gets a line, since clients and proxies may have timeouts."""

log = logging.getLogger("rink.sidecar")

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]


@attrs.define
class EventStream:
    """Send a consumer's events until either side ends the stream.

    Only a stream that the consumer closed can be an answer. The sidecar closes a stream if writes
    time out (`rink.sidecar.listeners`), or if the sidecar ends. Such a close is no answer.
    """

    _service: Service
    _consumer: Consumer
    _is_closed: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        service, consumer = self._service, self._consumer
        if consumer.is_forgotten:  # since the call began
            await send({"type": "http.response.start", "status": 410, "headers": _HEADERS})
            await send({"type": "http.response.body", "body": b""})
            return
        stream, inbox = service.open_stream(consumer)
        watching = asyncio.create_task(self._watch_close(receive, inbox.changed))
        is_ours = True
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            writer = EventWriter(service, consumer)
            while not self._is_closed:
                inbox.changed.clear()
                is_last = bool(inbox.bye)
                if body := writer.take(inbox):
                    message = {"type": "http.response.body", "body": body, "more_body": not is_last}
                    await send(message)
                if is_last:
                    return
                await self._next(inbox, writer)
            is_ours = scope["state"]["was_aborted"]()
            if is_ours:
                text = "consumer %s: writes to its stream timed out, so the stream was closed"
                log.warning(text, json.dumps(consumer.name))
        except OSError:  # the server raises it once the connection is gone
            is_ours = False
        finally:
            watching.cancel()
            service.close_stream(consumer, stream, by_consumer=not is_ours)

    @staticmethod
    async def _next(inbox: ServiceInbox, writer: EventWriter) -> None:
        try:
            async with asyncio.timeout(IDLE_INTERVAL_S):
                await inbox.changed.wait()
        except TimeoutError:
            writer.is_idle = True

    async def _watch_close(self, receive: Receive, wake: asyncio.Event) -> None:
        await disconnected(receive)
        self._is_closed = True
        wake.set()


async def disconnected(receive: Receive) -> None:
    """Wait until the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
