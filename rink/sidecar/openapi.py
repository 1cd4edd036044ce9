"""Describe the API as OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from rink.sidecar import bodies

_STRING: dict[str, Any] = {"type": "string"}
_INTEGER: dict[str, Any] = {"type": "integer"}


def _record(*optional: str, **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object, in which only some fields are optional."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "required": required, "properties": properties}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


_TURN = _record(
    "now_ms",
    "left_ms",
    "why",
    role=_STRING,
    token={
        **_INTEGER,
        "description": "Fencing token of the role. It grows from consumer to consumer.",
    },
    grant={**_STRING, "description": "Secret of the consumer."},
    state={"enum": ["held", "lost"]},
    until_ms={
        **_INTEGER,
        "description": "End of the turn, in milliseconds of CLOCK_BOOTTIME. It may be extended.",
    },
    life={**_STRING, "description": "Life of the sidecar."},
    now_ms=_INTEGER,
    left_ms={
        **_INTEGER,
        "description": (
            "Milliseconds until the end of the turn. Count them from a time before you sent the "
            "request."
        ),
    },
    why=_STRING,
)
_CONSUMER = _record(
    grant=_STRING,
    life=_STRING,
    now_ms=_INTEGER,
    held=_list({"$ref": "#/components/schemas/Turn"}),
    waiting=_list(_record(role=_STRING, behind=_STRING)),
)
_ROLE = _record(
    held={"type": "boolean"},
    state={"enum": ["held", "lost", "none"]},
    token={"type": ["integer", "null"]},
    until_ms=_INTEGER,
    now_ms=_INTEGER,
    left_ms=_INTEGER,
    owner={"type": ["string", "null"]},
    why=_STRING,
)
_ERROR = _record(error=_STRING)
_NAME: dict[str, Any] = {
    "type": "string",
    "minLength": 1,
    "maxLength": bodies.MAX_NAME_BYTES,
    "pattern": r"^[^\u0000-\u001f\u007f-\u009f]+$",
    "description": f"At most {bodies.MAX_NAME_BYTES} bytes of UTF-8, without control characters.",
}
_GRANT: dict[str, Any] = {"type": "string", "minLength": 1}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _answers(*refusals: int, **answers: dict[str, Any]) -> dict[str, Any]:
    """Return the responses of a call: answers by status, and refusals."""
    responses = {name.removeprefix("_"): answer for name, answer in answers.items()}
    for status in refusals:
        responses[str(status)] = {
            "description": "Refused, with the reason in a sentence.",
            "content": _json({"$ref": "#/components/schemas/Error"}),
        }
    return responses


def _object(description: str, schema: str | None = None) -> dict[str, Any]:
    content = {"$ref": f"#/components/schemas/{schema}"} if schema else {"type": "object"}
    return {"description": description, "content": _json(content)}


def _body(*required: list[str], **properties: dict[str, Any]) -> dict[str, Any]:
    """Return a request body with one of these sets of required fields.

    If there are several sets, the last one excludes all other fields.
    """
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    if len(required) == 1:
        schema["required"] = required[0]
    else:
        schema["oneOf"] = [{"required": names} for names in required[:-1]]
        schema["oneOf"] += [{"required": required[-1], "maxProperties": len(required[-1])}]
    return {"required": True, "content": _json(schema)}


_COMMON = (400, 401, 403, 421, 431)
_POSTED = (*_COMMON, 408, 413, 415)

_TURNS = "The turns of the consumer, and the roles that it waits for."
_HOLD_ANSWER = {
    "description": f"{_TURNS} With `Accept: text/event-stream` a stream of events: granted, "
    "renewed, lost, waiting, bye.",
    "content": {
        **_json({"$ref": "#/components/schemas/Consumer"}),
        "text/event-stream": {"schema": {"type": "string"}},
    },
}


def _get(summary: str, responses: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"get": {"summary": summary, **more, "responses": responses}}


def _post(summary: str, responses: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"post": {"summary": summary, **more, "responses": responses}}


_HOLD = _body(
    ["roles"],
    ["grant"],
    roles={**_list(_NAME), "minItems": 1, "maxItems": bodies.MAX_ROLES},
    consumer={**_STRING, "pattern": f"^{bodies.CONSUMER.pattern}$"},
    wait={"type": "number", "minimum": 0, "maximum": bodies.MAX_WAIT_S},
    alive={"type": "number", "minimum": 1, "maximum": bodies.MAX_ALIVE_S},
    on_close={"enum": list(bodies.ON_CLOSE)},
    grant=_GRANT,
)
_RELEASE = _body(
    ["grant", "role"],
    grant=_GRANT,
    role=_NAME,
    token={**_INTEGER, "minimum": 1, "maximum": bodies.MAX_NUMBER - 1},
)
_ROLE_QUERY = [
    {"name": "name", "in": "query", "required": True, "schema": _NAME},
    {
        "name": "fail", "in": "query", "allowEmptyValue": True,
        "description": "Answer with 404 if the role is not held.", "schema": _STRING,
    },
]  # fmt: skip
_WAIT_QUERY = {
    "name": "wait",
    "in": "query",
    "schema": {"type": "number", "minimum": 0, "maximum": bodies.MAX_WAIT_S},
}

_PATHS = {
    "/v1/hold": _post(
        "Hold roles, or resume a stream.",
        _answers(*_POSTED, 410, 429, 503, _200=_HOLD_ANSWER),
        requestBody=_HOLD,
    ),
    "/v1/renew": _post(
        "Renew a grant.",
        _answers(*_POSTED, 410, _200=_object(_TURNS, "Consumer")),
        requestBody=_body(["grant"], grant=_GRANT),
    ),
    "/v1/release": _post(
        "Answer a loss, or release a role.",
        _answers(*_POSTED, 409, 410, _204={"description": "Done."}),
        requestBody=_RELEASE,
    ),
    "/v1/role": _get(
        "Say whether a role is held here now.",
        _answers(
            *_COMMON,
            _200=_object("The role.", "Role"),
            _404=_object("The role is not held, and `fail` was given.", "Role"),
        ),
        parameters=_ROLE_QUERY,
    ),
    "/v1/status": _get(
        "Show the group and the consumers.", _answers(*_COMMON, _200=_object("The status."))
    ),
    "/v1/members": _get(
        "Show the members of the group.", _answers(*_COMMON, 409, _200=_object("The members."))
    ),
    "/v1/history": _get(
        "Show the newest versions.", _answers(*_COMMON, 409, _200=_object("The versions."))
    ),
    "/v1/drain": _post(
        "Begin to leave for good.",
        _answers(
            *_COMMON,
            415,
            _200=_object("The sidecar has left."),
            _202=_object("The sidecar is still leaving."),
        ),
        parameters=[_WAIT_QUERY],
    ),
}

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Rink sidecar", "version": "1"},
    "paths": _PATHS,
    "components": {
        "schemas": {"Turn": _TURN, "Consumer": _CONSUMER, "Role": _ROLE, "Error": _ERROR}
    },
}
