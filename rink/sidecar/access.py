"""Refuse requests that no program of this pod would send.

This is ASGI middleware before the API.

The API listens on loopback or on a unix socket. A web page that a browser on the same machine shows
can send requests there, too. So a request needs a `Host` that a page cannot have (a name of another
site could be bound to 127.0.0.1), and must not come from a page. A body needs a content type that a
page cannot send without asking first (`rink.sidecar.bodies`).
"""

from __future__ import annotations

import hmac
import ipaddress
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from rink.errors import ConfigError
from rink.sidecar.errors import Refused
from rink.sidecar.http_api import refusal

MIN_BEARER_BYTES = 32
MAX_HEAD_BYTES = 16 * 1024
"""Largest size of the head of a request."""


class Bearer:
    """Compare the token of requests with that of a file.

    The file is read again when it changes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._token = b""
        self._read()

    def is_right(self, given: bytes) -> bool:
        """Return whether a request's token is the right one."""
        self._read()
        return hmac.compare_digest(given, self._token)

    def _read(self) -> None:
        try:
            found = self._path.stat()
            seen = found.st_mtime_ns, found.st_ino
            if seen == self._seen:
                return
            token = self._path.read_bytes().strip()
        except OSError as error:
            if self._seen is None:
                raise ConfigError(f"the token file {self._path}: {error.strerror}") from error
            return  # it is being replaced: the earlier token stands
        if len(token) < MIN_BEARER_BYTES:
            if self._seen is None:
                raise ConfigError(
                    f"the token file {self._path} has {len(token)} bytes: it needs "
                    f"{MIN_BEARER_BYTES} or more, such as from `openssl rand -hex 32`"
                )
            return
        self._seen, self._token = seen, token


class Access:
    """Let only requests through that may be a program's of this machine.

    Args:
        app: what answers them.
        bearer: the token that each needs, or None.
        host: whether the `Host` header must name loopback; not so on a unix socket, which no page
            reaches, or where the address was allowed to be another one.
    """

    def __init__(self, app: ASGIApp, bearer: Bearer | None, host: bool) -> None:
        self._app = app
        self._bearer = bearer
        self._host = host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            self._check(scope)
        except Refused as refused:
            await refusal(refused)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        # h11 bounds only a head that comes in parts.
        fields = sum(len(name) + len(value) for name, value in scope["headers"])
        if fields + len(scope["path"]) + len(scope["query_string"]) > MAX_HEAD_BYTES:
            raise Refused(431, f"the head of the request is larger than {MAX_HEAD_BYTES:,} bytes")
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in (b"host", b"authorization") and name in headers:
                raise Refused(400, f"the header {name.decode()} is there twice")
            headers[name] = value
        if self._host and not _is_loopback(headers.get(b"host", b""), scope["server"]):
            raise Refused(
                421, "the Host header must be localhost or a loopback address, and the port"
            )
        if b"origin" in headers or headers.get(b"sec-fetch-site", b"none") != b"none":
            raise Refused(403, "requests of web pages are refused")
        if self._bearer is not None:
            scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
            if scheme.lower() != b"bearer" or not self._bearer.is_right(token.strip()):
                raise Refused(
                    401,
                    "the request needs `Authorization: Bearer TOKEN`, with the token of the file",
                )


def _is_loopback(host: bytes, server: tuple[str, int | None]) -> bool:
    """Return whether a Host header names loopback and the right port."""
    name, colon, port = host.decode("latin-1").rpartition(":")
    if not colon or port != str(server[1]):
        return False
    if name.lower() == "localhost":
        return True
    try:
        if name.startswith("[") and name.endswith("]"):
            return ipaddress.IPv6Address(name[1:-1]).is_loopback
        return ipaddress.IPv4Address(name).is_loopback
    except ValueError:
        return False
