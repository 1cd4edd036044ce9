"""Describe the API as OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from rink.sidecar import bodies

_TURN: dict[str, Any] = {
    "type": "object",
    "required": ["role", "token", "grant", "state", "until_ms", "life"],
    "properties": {
        "role": {"type": "string"},
        "token": {"type": "integer", "description": "Fencing token: greater with each consumer."},
        "grant": {"type": "string", "description": "Secret of the consumer."},
        "state": {"enum": ["held", "lost"]},
        "until_ms": {
            "type": "integer",
            "description": "End of the turn, in milliseconds of CLOCK_BOOTTIME. It is moved on.",
        },
        "life": {"type": "string", "description": "Life of the sidecar."},
        "now_ms": {"type": "integer"},
        "left_ms": {
            "type": "integer",
            "description": (
                "Milliseconds until the end, counted from a time before the request was sent."
            ),
        },
        "why": {"type": "string"},
    },
}
_CONSUMER: dict[str, Any] = {
    "type": "object",
    "required": ["grant", "life", "now_ms", "held", "waiting"],
    "properties": {
        "grant": {"type": "string"},
        "life": {"type": "string"},
        "now_ms": {"type": "integer"},
        "held": {"type": "array", "items": {"$ref": "#/components/schemas/Turn"}},
        "waiting": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["role", "behind"],
                "properties": {"role": {"type": "string"}, "behind": {"type": "string"}},
            },
        },
    },
}
_ROLE: dict[str, Any] = {
    "type": "object",
    "required": ["held", "state", "token", "until_ms", "now_ms", "left_ms", "owner", "why"],
    "properties": {
        "held": {"type": "boolean"},
        "state": {"enum": ["held", "lost", "none"]},
        "token": {"type": ["integer", "null"]},
        "until_ms": {"type": "integer"},
        "now_ms": {"type": "integer"},
        "left_ms": {"type": "integer"},
        "owner": {"type": ["string", "null"]},
        "why": {"type": "string"},
    },
}
_ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string"}},
}
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

_HOLD_ANSWER = {
    "description": "What is held. With `Accept: text/event-stream` a stream of events: "
    "granted, renewed, lost, waiting, bye.",
    "content": {
        **_json({"$ref": "#/components/schemas/Consumer"}),
        "text/event-stream": {"schema": {"type": "string"}},
    },
}

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "Rink sidecar", "version": "1"},
    "paths": {
        "/v1/hold": {
            "post": {
                "summary": "Hold roles, or resume a stream.",
                "requestBody": _body(
                    ["roles"],
                    ["grant"],
                    roles={
                        "type": "array", "items": _NAME, "minItems": 1,
                        "maxItems": bodies.MAX_ROLES,
                    },
                    consumer={"type": "string", "pattern": f"^{bodies.CONSUMER.pattern}$"},
                    wait={"type": "number", "minimum": 0, "maximum": bodies.MAX_WAIT_S},
                    alive={"type": "number", "minimum": 1, "maximum": bodies.MAX_ALIVE_S},
                    on_close={"enum": list(bodies.ON_CLOSE)},
                    grant=_GRANT,
                ),
                "responses": _answers(*_POSTED, 410, 429, 503, _200=_HOLD_ANSWER),
            }
        },
        "/v1/renew": {
            "post": {
                "summary": "Renew a grant.",
                "requestBody": _body(["grant"], grant=_GRANT),
                "responses": _answers(*_POSTED, 410, _200=_object("What is held.", "Consumer")),
            }
        },
        "/v1/release": {
            "post": {
                "summary": "Answer a loss, or give a role back.",
                "requestBody": _body(
                    ["grant", "role"],
                    grant=_GRANT,
                    role=_NAME,
                    token={"type": "integer", "minimum": 1, "maximum": bodies.MAX_NUMBER - 1},
                ),
                "responses": _answers(*_POSTED, 409, 410, _204={"description": "Done."}),
            }
        },
        "/v1/role": {
            "get": {
                "summary": "Say whether a role is held here now.",
                "parameters": [
                    {"name": "name", "in": "query", "required": True, "schema": _NAME},
                    {
                        "name": "fail", "in": "query", "allowEmptyValue": True,
                        "description": "404 if it is not held.", "schema": {"type": "string"},
                    },
                ],
                "responses": _answers(
                    *_COMMON,
                    _200=_object("The role.", "Role"),
                    _404=_object("It is not held, and `fail` was given.", "Role"),
                ),
            }
        },
        "/v1/status": {
            "get": {
                "summary": "Show the group and the consumers.",
                "responses": _answers(*_COMMON, _200=_object("The status.")),
            }
        },
        "/v1/members": {
            "get": {
                "summary": "Show the members of the group.",
                "responses": _answers(*_COMMON, 409, _200=_object("The members.")),
            }
        },
        "/v1/history": {
            "get": {
                "summary": "Show the newest versions.",
                "responses": _answers(*_COMMON, 409, _200=_object("The versions.")),
            }
        },
        "/v1/drain": {
            "post": {
                "summary": "Begin to leave for good.",
                "parameters": [
                    {
                        "name": "wait", "in": "query",
                        "schema": {"type": "number", "minimum": 0, "maximum": bodies.MAX_WAIT_S},
                    }
                ],
                "responses": _answers(
                    *_COMMON,
                    415,
                    _200=_object("It has left."),
                    _202=_object("It is still leaving."),
                ),
            }
        },
    },
    "components": {
        "schemas": {"Turn": _TURN, "Consumer": _CONSUMER, "Role": _ROLE, "Error": _ERROR}
    },
}  # fmt: skip
