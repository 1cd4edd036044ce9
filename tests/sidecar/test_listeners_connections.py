"""Test the most connections of a listener, and which ones it closes."""

import asyncio

import uvicorn
from sidecar_apart import run
from uvicorn.server import ServerState

from rink.sidecar.listeners import Protocol

MAX_CONNECTIONS = 4
HEAD = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n"


class Transport(asyncio.Transport):
    """Stand in for a transport, which the next turn of the loop closes."""

    def __init__(self):
        super().__init__()
        self.written, self.is_aborted = b"", False

    def abort(self):
        self.is_aborted = True

    def is_closing(self):
        return self.is_aborted

    def write(self, data):
        self.written += data

    def resume_reading(self):
        """Do nothing."""

    def close(self):
        self.is_aborted = True


class Listener:
    """Stand in for a listener, to which a test connects."""

    def __init__(self):
        self.release = asyncio.Event()
        config = uvicorn.Config(
            self.app, interface="asgi3", ws="none", lifespan="off", log_config=None
        )
        config.load()
        limits = {"open": {}, "max_connections": MAX_CONNECTIONS}
        self._protocol = type("Limited", (Protocol,), limits)
        self._config, self._state = config, ServerState()
        self.connections = []

    async def app(self, scope, receive, send):
        """Answer once a test allows it."""
        del scope
        while (await receive()).get("more_body"):
            pass
        await self.release.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def connect(self, data=b""):
        """Open a connection, and send bytes on it."""
        protocol = self._protocol(self._config, self._state, {}, asyncio.get_running_loop())
        protocol.connection_made(Transport())
        if data:
            protocol.data_received(data)
        self.connections.append(protocol)
        return protocol

    @property
    def open(self):
        """Return the indexes of the connections that are not aborted."""
        return [i for i, one in enumerate(self.connections) if not one.transport.is_aborted]

    def end(self):
        for one in self.connections:
            one.connection_lost(None)


@run
async def test_connections_in_one_burst_are_no_more_than_the_limit():
    """The event loop accepts a burst at once, before it closes a connection."""
    listener = Listener()
    for _ in range(5 * MAX_CONNECTIONS):
        listener.connect(b"POST / HTT")
    assert listener.open == list(range(4 * MAX_CONNECTIONS, 5 * MAX_CONNECTIONS))
    listener.end()


@run
async def test_connection_with_half_a_body_makes_room():
    listener = Listener()
    whole = [listener.connect(HEAD + b"{}") for _ in range(MAX_CONNECTIONS - 1)]
    half = listener.connect(HEAD + b"{")
    newest = listener.connect()
    assert half.transport.is_aborted
    assert not newest.transport.is_aborted
    assert not any(one.transport.is_aborted for one in whole)
    listener.end()


@run
async def test_connection_is_refused_while_all_others_are_served():
    listener = Listener()
    for _ in range(MAX_CONNECTIONS):
        listener.connect(HEAD + b"{}")
    assert listener.connect().transport.is_aborted
    assert listener.open == list(range(MAX_CONNECTIONS))
    listener.end()
