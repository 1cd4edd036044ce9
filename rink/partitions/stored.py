"""Encode and decode a partition's value in etcd, as JSON.

The value has the committed offset and its writer. An unreadable key of a group is ignored, but an
unreadable offset is an error. A consumer that began somewhere else would skip or repeat work.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from rink.core.values import FORMAT
from rink.errors import ConfigError, StateError

MAX_OFFSET = 2**63 - 1
"""The largest offset, which is the limit of brokers and databases."""


@attrs.frozen
class Stored:
    """Hold an offset, its writer and token, and the number of partitions."""

    offset: int
    token: int
    member: str
    partitions: int


def check_offset(offset: object) -> int:
    """Return an offset, or raise a ConfigError."""
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise ConfigError(
            f"an offset is a whole number, not {offset!r}, since two offsets must have an order. "
            "Count what has been done, or number the places and commit the number"
        )
    if not 0 <= offset <= MAX_OFFSET:
        raise ConfigError(f"offset {offset} is out of range: it is 0 to {MAX_OFFSET}")
    return offset


def encode(stored: Stored) -> bytes:
    """Return the value as JSON, with its format number first."""
    fields = {"format": FORMAT, **attrs.asdict(stored)}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def read(key: bytes, value: bytes) -> Stored:
    """Return the value of a key, or raise a StateError that names the key."""
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _unreadable(key, "is not JSON") from error
    if not isinstance(fields, dict):
        raise _unreadable(key, "is not a JSON object")
    if fields.get("format") != FORMAT:
        has = f"has format {fields.get('format')!r}; this Rink reads format {FORMAT}"
        raise _unreadable(key, has)
    numbers = [fields.get(name) for name in ("offset", "token", "partitions")]
    if not all(map(_is_whole, numbers)) or not isinstance(fields.get("member"), str):
        raise _unreadable(key, "lacks a field, or has one of another type")
    return Stored(fields["offset"], fields["token"], fields["member"], fields["partitions"])


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _unreadable(key: bytes, what: str) -> StateError:
    name = key.decode(errors="backslashreplace")
    return StateError(
        f"the offset under {name} {what}, so the partition is not processed. In all members, "
        "run a Rink that reads this value. Or delete the key: then the partition starts at 0",
        key=name,
    )
