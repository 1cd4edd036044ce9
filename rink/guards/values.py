"""Define the arguments of guards: the fence, and the batch.

Names are any text. Each guard encodes the characters that its store does not accept.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, Self

import attrs

from rink.arguments import check_count
from rink.core.keys import check_name, encode_name
from rink.errors import ConfigError, StaleToken

TOKEN_LIMIT = 2**63
"""The exclusive limit of tokens. Tokens of etcd and of databases have 64 bits."""

PARTS_LIMIT = 10_000
"""The maximum number of parts of a batch. A guard may have to open each of them."""

FENCE_BYTES, QUERY_BYTES = 2_000, 200
"""The maximum sizes of percent-encoded names. PostgreSQL indexes the fence's name, and the query's
name is a directory's name.
"""


class Held(Protocol):
    """Describe an object with a name and a fencing token, such as a role."""

    @property
    def name(self) -> str:
        """Return the role's name."""

    @property
    def token(self) -> int:
        """Return the role's fencing token."""


def _is_name(what: str, limit: int) -> Callable[..., None]:
    """Return a validator of attrs for a name of at most `limit` bytes."""

    def check(_: object, __: object, name: object) -> None:
        checked = check_name(what, name)
        if (size := len(encode_name(checked))) > limit:
            raise ConfigError(
                f"{what} name {checked[:40]!r}… takes {size} bytes when percent-encoded; a guard "
                f"takes {limit}: use a shorter name"
            )

    return check


def _is_count(what: str, least: int, most: int) -> Callable[..., object]:
    """Return a validator of attrs for a whole number in a range."""
    return lambda _, __, number: check_count(what, number, least=least, most=most)


@attrs.frozen
class Fence:
    """Identify the fencing token under which a batch is written.

    Attributes:
        name: the role's name. A greater token of the same name makes this one stale.
        token: 1 to 2^63 - 1.
    """

    name: str = attrs.field(validator=_is_name("fence", FENCE_BYTES))
    token: int = attrs.field(validator=_is_count("token", 1, TOKEN_LIMIT - 1))

    @classmethod
    def of(cls, role: Held) -> Self:
        """Return the fence of a role, or of any object with `name` and `token`."""
        try:
            return cls(role.name, role.token)
        except AttributeError as error:
            raise ConfigError(f"{role!r} has no name and token: give a role") from error

    def stale(self, newer: int, place: str) -> StaleToken:
        """Return the error for a write under this fence, now that it is stale."""
        return StaleToken(
            f"token {self.token} of {self.name!r} is stale: {place} has seen {newer}; "
            "nothing was written",
            role=self.name,
            token=self.token,
            newer=newer,
        )


@attrs.frozen
class Batch:
    """Identify a batch of a query.

    Attributes:
        query: an id of the query. Use a new id with each new checkpoint, since batch numbers then
            begin anew.
        number: 0 or more. A later batch has a greater number.
        parts: the number of parts of each batch. It must stay the same for one query.
    """

    query: str = attrs.field(validator=_is_name("query", QUERY_BYTES))
    number: int = attrs.field(validator=_is_count("batch number", 0, TOKEN_LIMIT - 1))
    parts: int = attrs.field(validator=_is_count("parts", 1, PARTS_LIMIT))
