"""Read the bodies of requests within limits, and check them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any

import attrs
from starlette.requests import ClientDisconnect, Request

from rink.sidecar.errors import Refused

MAX_BODY_BYTES = 64 * 1024
BODY_TIMEOUT_S = 5.0
MAX_ROLES = 1_000
"""The maximum number of roles of one consumer."""
MAX_NAME_BYTES = 512
"""The maximum size of a role's name in UTF-8."""
MAX_WAIT_S = 3_600.0
MAX_ALIVE_S = 86_400.0
MAX_NUMBER = 2**53
"""Limit below which JSON numbers are exact in every language."""

CONSUMER = re.compile(r"[A-Za-z0-9._-]{1,64}")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
ON_CLOSE = ("keep", "release")


async def read(request: Request) -> Mapping[str, Any]:
    """Return the JSON object of a request's body.

    Raises:
        Refused: the body is too large, comes too slowly, or is no JSON object.
    """
    check_kind(request, "application/json")
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for chunk in request.stream():
                size += len(chunk)
                if size > MAX_BODY_BYTES:
                    raise Refused(413, f"the body is larger than {MAX_BODY_BYTES} bytes")
                chunks.append(chunk)
    except TimeoutError:
        raise Refused(408, f"the whole body did not come within {BODY_TIMEOUT_S:g} s") from None
    except ClientDisconnect:
        raise Refused(400, "the connection was closed before the whole body had come") from None
    try:
        body = json.loads(b"".join(chunks))
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise Refused(400, 'the body must be a JSON object, such as {"roles": ["leader"]}')
    return body


def check_kind(request: Request, *kinds: str) -> None:
    """Refuse a request of another content type; "" means no content type."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in kinds:
        raise Refused(415, "the request needs `Content-Type: application/json`")


@attrs.frozen
class HoldRequest:
    """Hold a request for roles, or to resume the stream of a grant."""

    roles: tuple[str, ...]
    consumer: str
    wait_s: float
    alive_ms: int | None
    releases_on_close: bool
    grant: str


def hold_of(body: Mapping[str, Any]) -> HoldRequest:
    """Return the request in a body of /v1/hold."""
    _only(body, {"roles", "consumer", "wait", "alive", "on_close", "grant"})
    grant = _text(body, "grant", "")
    roles = body.get("roles", [])
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise Refused(400, '"roles" must be a list of names')
    if bool(grant) == bool(roles):
        raise Refused(400, 'give either "roles", or the "grant" of a stream to resume')
    if grant and (more := body.keys() - {"grant", "roles"}):
        raise Refused(400, f'"{min(more)}" was given with the roles: resume with "grant" alone')
    if len(roles) > MAX_ROLES:
        raise Refused(400, f"{len(roles):,} roles are more than the {MAX_ROLES:,} of a consumer")
    for role in roles:
        check_role(role)
    consumer = _text(body, "consumer", "default")
    if not CONSUMER.fullmatch(consumer):
        raise Refused(400, '"consumer" must be 1 to 64 of A-Z a-z 0-9 . _ -')
    alive_s = _seconds(body, "alive", None, MAX_ALIVE_S)
    if alive_s is not None and alive_s < 1:
        raise Refused(400, '"alive" must be 1 or more seconds')
    on_close = _text(body, "on_close", "keep")
    if on_close not in ON_CLOSE:
        raise Refused(400, f'"on_close" must be one of {", ".join(ON_CLOSE)}')
    return HoldRequest(
        roles=tuple(dict.fromkeys(roles)),
        consumer=consumer,
        wait_s=_seconds(body, "wait", 0.0, MAX_WAIT_S) or 0.0,
        alive_ms=None if alive_s is None else int(alive_s * 1000),
        releases_on_close=on_close == "release",
        grant=grant,
    )


@attrs.frozen
class Release:
    """Hold a consumer's answer: a role and the token of its turn."""

    grant: str
    role: str
    token: int | None


def grant_of(body: Mapping[str, Any]) -> str:
    """Return the grant of a body of /v1/renew."""
    _only(body, {"grant"})
    return _needed(body, "grant")


def release_of(body: Mapping[str, Any]) -> Release:
    """Return the answer in a body of /v1/release."""
    _only(body, {"grant", "role", "token"})
    role, token = _needed(body, "role"), body.get("token")
    check_role(role)
    if "token" in body and (
        isinstance(token, bool) or not isinstance(token, int) or not 0 < token < MAX_NUMBER
    ):
        raise Refused(400, '"token" must be the token of the grant, a whole number')
    return Release(_needed(body, "grant"), role, token)


def check_role(role: str) -> None:
    """Refuse an invalid name of a role."""
    try:
        size = len(role.encode())
    except UnicodeEncodeError:
        raise Refused(400, "the name of a role is no valid Unicode") from None
    if not 0 < size <= MAX_NAME_BYTES:
        raise Refused(400, f"the name of a role must have 1 to {MAX_NAME_BYTES} bytes of UTF-8")
    if CONTROL.search(role):
        raise Refused(400, "the name of a role must not have control characters")


def _only(body: Mapping[str, Any], names: set[str]) -> None:
    """Refuse unknown fields, since a misspelt field would be ignored."""
    unknown = [json.dumps(name) for name in body if name not in names]
    if unknown:
        known = ", ".join(f'"{name}"' for name in sorted(names))
        raise Refused(400, f"unknown field {unknown[0]}: the fields are {known}")


def _text(body: Mapping[str, Any], name: str, default: str) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise Refused(400, f'"{name}" must be a string')
    return value


def _needed(body: Mapping[str, Any], name: str) -> str:
    value = _text(body, name, "")
    if not value:
        raise Refused(400, f'"{name}" is missing')
    return value


def _seconds(
    body: Mapping[str, Any], name: str, default: float | None, most: float
) -> float | None:
    if name not in body:
        return default
    value = body[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
        raise Refused(400, f'"{name}" must be a number of seconds, at most {most:g}')
    return float(value)
