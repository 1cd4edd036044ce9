"""Listen on the sockets of a sidecar, and serve applications on them."""

from __future__ import annotations

import asyncio
import contextlib
import grp
import ipaddress
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import attrs
import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from rink.errors import ConfigError
from rink.sidecar.access import MAX_HEAD_BYTES

HEAD_TIMEOUT_S = 5.0
"""Seconds within which the head of a request must be complete."""
SEND_TIMEOUT_S = 5.0
"""Seconds after which a connection that cannot be written to is closed."""
MAX_CALLERS = 192
"""The maximum number of connections in addition to streams.

128 are for holds and drains that wait (`rink.sidecar.http_api.MAX_CALLS`), and 64 are for all other
calls, so that a renewal always gets a connection.
"""
BACKLOG = 256
STOP_TIMEOUT_S = 2.0
DATE_INTERVAL_S = 1.0


class Protocol(H11Protocol):
    """Speak HTTP/1.1, and limit how long a client may occupy a connection.

    At any time, a connection is served, or it is between two requests. The time between requests is
    limited, even if the client sends a head byte by byte, or the rest of a body that the sidecar
    does not read. While a connection is served, the time for which writes may block is limited.

    `open` has the connections of one listener, oldest first. An aborted connection is removed at
    once, since the event loop accepts many connections before it closes any.

    `was_aborted` in the state of an application's scope returns whether this class aborted the
    connection. Without it, the application could not distinguish an abort from the client's close.
    """

    max_connections = MAX_CALLERS
    open: ClassVar[dict[Protocol, None]] = {}

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._aborted = aborted = [False]  # a list, since a reference to self would be a cycle
        self.app_state = {**self.app_state, "was_aborted": lambda: aborted[0]}
        self._between: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    @property
    def is_served(self) -> bool:
        """Return whether a request is being answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def has_request(self) -> bool:
        """Return whether a whole request is being answered."""
        return self.is_served and not self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin with a connection.

        If there are too many, the oldest connection without a whole request is closed. So clients
        that keep connections open, or send half a request, cannot lock out probes and renewals.
        """
        super().connection_made(transport)
        self._watch()
        self.open[self] = None
        if len(self.open) > self.max_connections:
            idle = (other for other in self.open if not other.has_request)
            next(idle)._abort()  # noqa: SLF001

    def data_received(self, data: bytes) -> None:
        """Take bytes of a request."""
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # invalid bytes after an answer cannot be answered
            self._abort()
        self._watch()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._watch()

    def pause_writing(self) -> None:
        """Wait until the client reads, but not forever."""
        super().pause_writing()
        self._writing = self.loop.call_later(SEND_TIMEOUT_S, self._abort)

    def resume_writing(self) -> None:
        """Continue writing."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def connection_lost(self, exc: Exception | None) -> None:
        """End with the connection."""
        self.open.pop(self, None)
        super().connection_lost(exc)
        if self._writing is not None:
            self._writing.cancel()
        self._end_between()

    def shutdown(self) -> None:
        """End with the server."""
        try:
            super().shutdown()
        except h11.LocalProtocolError:
            self._abort()

    def _watch(self) -> None:
        if self.is_served:
            self._end_between()
        elif self._between is None:
            self._between = self.loop.call_later(HEAD_TIMEOUT_S, self._abort)

    def _end_between(self) -> None:
        if self._between is not None:
            self._between.cancel()
            self._between = None

    def _abort(self) -> None:
        self._aborted[0] = True
        self.open.pop(self, None)
        self.transport.abort()


class _Server(uvicorn.Server):
    """Serve until an event is set, and leave signals to the command."""

    def __init__(self, config: uvicorn.Config, stop: asyncio.Event) -> None:
        super().__init__(config)
        self._stop = stop

    async def main_loop(self) -> None:
        """Keep the Date header right.

        uvicorn's own loop checks ten times a second whether to exit. In an idle sidecar, this would
        be most of the CPU time.
        """
        while not self._stop.is_set():
            await self.on_tick(0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), DATE_INTERVAL_S)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


async def serve(
    app: ASGIApp, listener: socket.socket, stop: asyncio.Event, streams: int = 0
) -> None:
    """Serve an application on a socket until `stop` is set.

    Up to `streams` connections may be streams, in addition to `MAX_CALLERS` others.
    """
    limited = {"max_connections": streams + MAX_CALLERS, "open": {}}
    config = uvicorn.Config(
        app,
        http=type("LimitedProtocol", (Protocol,), limited),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        backlog=BACKLOG,
        timeout_graceful_shutdown=int(STOP_TIMEOUT_S),
    )
    await _Server(config, stop).serve(sockets=[listener])


@attrs.frozen
class Address:
    """Hold an address to listen on: host and port, or a unix socket's path."""

    host: str = ""
    port: int = 0
    path: str = ""

    @classmethod
    def of(cls, text: str) -> Address:
        """Return the address that the text of an option names.

        Raises:
            ConfigError: the text names no address.
        """
        if text.startswith(("unix:", "/")):
            return cls(path=text.removeprefix("unix:"))
        parts = re.fullmatch(r"(?:\[([^]]*)\]|([^:\[\]]*)):(\d{1,5})", text)
        if parts is None or int(parts[3]) > 65_535:
            raise ConfigError(f"{text!r} is no address: give HOST:PORT, or unix:PATH")
        return cls(parts[1] or parts[2] or "127.0.0.1", int(parts[3]))

    @classmethod
    def of_probes(cls, text: str) -> Address:
        """Return the address of probes that the text of an option names.

        Raises:
            ConfigError: the text names no address, or a unix socket, which no probe calls.
        """
        address = cls.of(text)
        if address.path:
            raise ConfigError(f"{text!r} is no address for probes: give HOST:PORT")
        return address

    @property
    def is_local(self) -> bool:
        """Return whether only this machine reaches it."""
        if self.path:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False  # a name, even localhost, may resolve to any address

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def listen(address: Address, group: str | None = None) -> socket.socket:
    """Open a socket that listens.

    `group` is the name or number of a group whose processes may use a unix socket, too.

    Raises:
        ConfigError: the address is taken, or cannot be used.
    """
    if address.path:
        return _listen_unix(address.path, group)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only if the protocol is named. With Nagle, each answer
    # waits 40 ms for the client's kernel.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ConfigError(f"cannot listen on {address}: {error.strerror}") from error
    listener.setblocking(False)
    return listener


def _listen_unix(path: str, group: str | None) -> socket.socket:
    """Listen on a unix socket, in a folder that others cannot enter.

    The socket of an earlier process is removed only if no process answers on it.
    """
    place = Path(path)
    listener = socket.socket(socket.AF_UNIX)
    try:
        number = None if group is None else _group_number(group)
        _check_folder(place.parent, number)
        if place.is_socket():
            _refuse_answered(path)
            place.unlink()
        before = os.umask(0o177 if number is None else 0o117)
        try:
            listener.bind(path)
        finally:
            os.umask(before)
        if number is not None:  # no client can connect before `listen`
            os.chown(path, -1, number, follow_symlinks=False)
        listener.listen(BACKLOG)
    except BaseException as error:
        listener.close()
        if isinstance(error, KeyError):
            raise ConfigError(f"there is no group {group!r} on this system") from None
        if isinstance(error, OSError):
            why = error.strerror or error
            raise ConfigError(f"cannot listen on unix:{path}: {why}") from error
        raise
    listener.setblocking(False)
    return listener


def _group_number(group: str) -> int:
    """Return the number of a group, which may be given as a number.

    A pod's `fsGroup` has no name in an image.
    """
    return int(group) if group.isascii() and group.isdigit() else grp.getgrnam(group).gr_gid


def _check_folder(folder: Path, group: int | None) -> None:
    """Make a socket's folder, or refuse a folder that others may write."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        if group is not None:
            _admit(folder, group)
    status = folder.stat()
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(
            f"the folder {folder} belongs to user {status.st_uid}, who could replace the socket: "
            "use a folder of this user"
        )
    mode = stat.S_IMODE(status.st_mode)
    access = mode & 0o777  # the setgid bit comes from the parent, as in a volume with an fsGroup
    if group is None and access & 0o077:
        raise ConfigError(
            f"the folder {folder} has mode {mode:o}: others could replace the socket, so make it "
            "0700"
        )
    if group is not None and (access & 0o077 not in (0o010, 0o050) or status.st_gid != group):
        raise ConfigError(
            f"the folder {folder} has mode {mode:o} and is of group {status.st_gid}: only "
            "processes of --socket-group may enter it, and only the sidecar may write it, so make "
            f"it 0710 and of group {group}"
        )


def _admit(folder: Path, group: int) -> None:
    """Let a group enter a new folder, without following a link."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(fd).st_uid == os.geteuid():
            os.fchown(fd, -1, group)
            os.fchmod(fd, 0o710)
    finally:
        os.close(fd)


def _refuse_answered(path: str) -> None:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return
        except OSError as error:
            raise ConfigError(
                f"cannot check whether a process answers on unix:{path}: {error}"
            ) from error
    raise ConfigError(f"another process answers on unix:{path}: give another path")
