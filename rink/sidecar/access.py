"""Refuse requests that no program of this pod would send, before the API.

A web page in a browser on the same machine can send requests to loopback, too. So requests of pages
are refused. The `Host` must be one that a page cannot have, since the name of another site could
resolve to 127.0.0.1. A body needs a content type that a page may only send after a preflight
request (`rink.sidecar.bodies`).
"""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
from pathlib import Path

import attrs
from starlette.types import ASGIApp, Receive, Scope, Send

from rink.errors import ConfigError
from rink.plural import plural
from rink.sidecar.errors import Refused
from rink.sidecar.http_api import refusal

MIN_BEARER_BYTES = 32
MAX_HEAD_BYTES = 16 * 1024
"""The maximum size of the head of a request."""


class Bearer:
    """Compare the tokens of requests with the current token in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._token = b""
        self._read()

    def is_right(self, token: bytes) -> bool:
        """Return whether a request's token is right."""
        with contextlib.suppress(ConfigError):  # the file is being replaced: the old token is valid
            self._read()
        return hmac.compare_digest(token, self._token)

    def _read(self) -> None:
        try:
            status = self._path.stat()
            seen = status.st_mtime_ns, status.st_ino
            if seen == self._seen:
                return
            token = self._path.read_bytes().strip()
        except OSError as error:
            why = f"cannot read the token file {self._path}: {error.strerror}"
            raise ConfigError(why) from error
        if len(token) < MIN_BEARER_BYTES:
            raise ConfigError(
                f"the token file {self._path} has {len(token)} "
                f"{plural(len(token), 'byte')}: it needs {MIN_BEARER_BYTES} or more, such as from "
                "`openssl rand -hex 32`"
            )
        self._seen, self._token = seen, token


@attrs.frozen
class Access:
    """Pass on only requests that a program of this machine may send.

    If `host` is true, the `Host` header must name loopback. It is false on a unix socket, which no
    page reaches, and if another address was allowed.
    """

    _app: ASGIApp
    _bearer: Bearer | None
    _host: bool

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        try:
            self._check(scope)
        except Refused as refused:
            await refusal(refused)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> None:
        # h11 limits only a head that arrives in parts.
        fields = sum(len(name) + len(value) for name, value in scope["headers"])
        if fields + len(scope["path"]) + len(scope["query_string"]) > MAX_HEAD_BYTES:
            raise Refused(431, f"the head of the request is larger than {MAX_HEAD_BYTES:,} bytes")
        headers: dict[bytes, bytes] = {}
        for name, value in scope["headers"]:
            if name in (b"host", b"authorization") and name in headers:
                raise Refused(400, f"the header {name.decode()} occurs twice")
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
