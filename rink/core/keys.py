"""Map names to etcd keys, and keys to names.

Names are percent-encoded, so `BTC/ETH`, `..`, spaces and any Unicode are legal. No key of one name
is a prefix of another name's range, because a group's prefix ends with `/`, and an encoded name
contains none.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

import attrs

from rink.errors import ConfigError

NAME_LIMIT_BYTES = 8_192
"""Largest percent-encoded name: etcd takes longer keys, but people cannot read them."""

MEMBERS = "members/"
VERSIONS = "versions/"
REQUESTS = "requests/"

OFFSETS = ":offsets"
"""Suffix of a group's name in the keys of its offsets. No encoded name contains a `:`."""

SLOTS = ":slots"
"""Suffix of a group's name in the keys of the slots of `rink run --once-per`."""


def check_name(what: str, name: object) -> str:
    """Return the name, or raise a ConfigError that says what is wrong.

    A name is any non-empty string that UTF-8 can carry, up to 8 kB when percent-encoded. `what` is
    "group", "member" or "role", for the message.
    """
    if isinstance(name, str) and name.isascii() and 0 < len(name) <= NAME_LIMIT_BYTES // 3:
        return name  # most names: however it is encoded, it is not too long
    if not isinstance(name, str):
        raise ConfigError(f"{what} name must be a str, not {type(name).__name__}: {name!r}")
    if not name:
        raise ConfigError(f"{what} name is empty: give it at least one character")
    try:
        size = len(encode_name(name))
    except UnicodeEncodeError as error:
        raise ConfigError(f"{what} name {name!r} is not valid unicode: {error}") from error
    if size > NAME_LIMIT_BYTES:
        raise ConfigError(
            f"{what} name {name[:40]!r}… takes {size} bytes when percent-encoded; "
            f"the limit is {NAME_LIMIT_BYTES}"
        )
    return name


def encode_name(name: str) -> str:
    """Percent-encode a name as a path segment: no `/`, and never `.` or `..`."""
    segment = quote(name, safe="")
    return segment if name.strip(".") else segment.replace(".", "%2E")


def decode_name(segment: str) -> str | None:
    """Return the name behind a segment, or None if it encodes no name."""
    name = unquote(segment, errors="surrogateescape")
    try:
        return name if name and encode_name(name) == segment else None
    except UnicodeEncodeError:
        return None


@attrs.frozen
class _KeyRange:
    root: bytes

    @property
    def end(self) -> bytes:
        """Return the end of the range: `root` ends in `/`, and `0` follows it."""
        return self.root[:-1] + b"0"


@attrs.frozen
class Keys(_KeyRange):
    """Build the keys of one group."""

    @classmethod
    def of(cls, prefix: str, group: str) -> Keys:
        """Return the keys of a group under a prefix such as `rink/`."""
        return cls(f"{prefix}{encode_name(group)}/".encode())

    def member(self, name: str) -> bytes:
        """Return the key of a member's record."""
        return self.root + f"{MEMBERS}{encode_name(name)}".encode()

    def version(self, number: int) -> bytes:
        """Return the key of a version; keys sort as their numbers do."""
        return self.root + f"{VERSIONS}{number:016d}".encode()

    def request(self, request_id: str) -> bytes:
        """Return the key of an operator's request."""
        return self.root + f"{REQUESTS}{encode_name(request_id)}".encode()


@attrs.frozen
class OffsetKeys(_KeyRange):
    """Build the keys of the offsets of one topic of a group.

    The keys are outside of the group's own range, because every member watches that range, and no
    commit concerns a member.
    """

    @classmethod
    def of(cls, prefix: str, group: str, topic: str) -> OffsetKeys:
        """Return the keys of a topic of a group under a prefix such as `rink/`."""
        return cls(f"{prefix}{encode_name(group)}{OFFSETS}/{encode_name(topic)}/".encode())

    def partition(self, number: int) -> bytes:
        """Return the key of a partition's offset."""
        return self.root + str(number).encode()


@attrs.frozen
class SlotKeys(_KeyRange):
    """Build the keys of the slots of one role, outside of the group's range.

    There is one slot for each scheduled run.
    """

    @classmethod
    def of(cls, prefix: str, group: str, role: str) -> SlotKeys:
        """Return the keys of a role of a group under a prefix such as `rink/`."""
        return cls(f"{prefix}{encode_name(group)}{SLOTS}/{encode_name(role)}/".encode())

    def slot(self, name: str) -> bytes:
        """Return the key of a slot."""
        return self.root + encode_name(name).encode()


def is_beside_group(segment: str) -> bool:
    """Return whether a group's offsets or slots lie under this segment."""
    group, mark, rest = segment.partition(":")
    return mark + rest in (OFFSETS, SLOTS) and decode_name(group) is not None
