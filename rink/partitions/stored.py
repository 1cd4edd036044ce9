"""What lies in etcd under a partition, as JSON: the committed offset, and who wrote it.

Unlike a group's keys, which a member must be able to live beside, an offset that cannot be read is
an error: whoever began somewhere else instead would skip work, or do it twice.
"""

from __future__ import annotations

import json
from typing import Any

import attrs

from rink.core.values import FORMAT
from rink.errors import ConfigError, StateError

LARGEST = 2**63 - 1
"""Of an offset: what brokers and databases have room for."""


@attrs.frozen
class Stored:
    """A partition's offset; who wrote it, under which token; how many partitions the topic has."""

    offset: int
    token: int
    member: str
    partitions: int


def check_offset(offset: object) -> int:
    """Return an offset, or raise a ConfigError that says what is wrong."""
    if isinstance(offset, bool) or not isinstance(offset, int):
        raise ConfigError(
            f"an offset is a whole number, not {offset!r}: it must be known which of two is "
            "further on. Count what has been done, or number the places and commit the number"
        )
    if not 0 <= offset <= LARGEST:
        raise ConfigError(f"offset {offset} is out of range: it is 0 to {LARGEST}")
    return offset


def encode(stored: Stored) -> bytes:
    """Return the JSON of it, with its format number first."""
    fields = {"format": FORMAT, **attrs.asdict(stored)}
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def read(key: bytes, value: bytes) -> Stored:
    """Return what lies under a key.

    Raises:
        StateError: it cannot be read; names the key.
    """
    try:
        fields = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise _unreadable(key, "is not JSON") from error
    if not isinstance(fields, dict):
        raise _unreadable(key, "is not a JSON object")
    if fields.get("format") != FORMAT:
        has = f"has format {fields.get('format')!r}; this Rink reads format {FORMAT}"
        raise _unreadable(key, has)
    whole = [fields.get(name) for name in ("offset", "token", "partitions")]
    if not all(_is_whole(one) for one in whole) or not isinstance(fields.get("member"), str):
        raise _unreadable(key, "lacks a field, or has one of another type")
    return Stored(fields["offset"], fields["token"], fields["member"], fields["partitions"])


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _unreadable(key: bytes, what: str) -> StateError:
    name = key.decode(errors="backslashreplace")
    return StateError(
        f"the offset under {name} {what}: nobody can go on from there. Let all members run a Rink "
        "that reads it; or delete the key, which begins the partition at 0",
        key=name,
    )
