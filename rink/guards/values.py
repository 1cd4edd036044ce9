"""Define the arguments of guards: the fence, and the batch.

Names are any text. Each guard encodes what its store does not take.
"""

from __future__ import annotations

from typing import Protocol, Self

import attrs

from rink.arguments import check_count
from rink.core.keys import check_name, encode
from rink.errors import ConfigError, StaleToken

TOKEN_LIMIT = 2**63
"""The limit of tokens: etcd's have 64 bits, and so have a database's."""

PARTS_LIMIT = 10_000
"""The most parts of a batch: a guard may have to touch every one of them."""

FENCE_BYTES, QUERY_BYTES = 2_000, 200
"""How long names may be when percent-encoded: PostgreSQL indexes the fence's, and the query's names
a directory.
"""


class Held(Protocol):
    """An object with a name and a fencing token: a role."""

    @property
    def name(self) -> str:
        """Return the role's name."""

    @property
    def token(self) -> int:
        """Return its fencing token."""


def _short_name(what: str, name: object, limit: int) -> str:
    checked = check_name(what, name)
    if (size := len(encode(checked))) > limit:
        raise ConfigError(
            f"{what} name {checked[:40]!r}… takes {size} bytes when percent-encoded; a guard "
            f"takes {limit}: use a shorter name"
        )
    return checked


def _check_fence_name(_: object, __: object, name: str) -> None:
    _short_name("fence", name, FENCE_BYTES)


def _check_token(_: object, __: object, token: int) -> None:
    check_count("token", token, most=TOKEN_LIMIT - 1)


def _check_query(_: object, __: object, query: str) -> None:
    _short_name("query", query, QUERY_BYTES)


def _check_number(_: object, __: object, number: int) -> None:
    check_count("batch number", number, least=0, most=TOKEN_LIMIT - 1)


def _check_parts(_: object, __: object, parts: int) -> None:
    check_count("parts", parts, most=PARTS_LIMIT)


@attrs.frozen
class Fence:
    """The token under which a batch is written.

    Attributes:
        name: the role's name. A greater token of the same name makes this one stale.
        token: 1 to 2^63 - 1.
    """

    name: str = attrs.field(validator=_check_fence_name)
    token: int = attrs.field(validator=_check_token)

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
            f"token {self.token} of {self.name!r} counts no more: {place} has seen {newer}; "
            "nothing was written",
            role=self.name,
            token=self.token,
            newer=newer,
        )


@attrs.frozen
class Batch:
    """A batch of a query.

    Attributes:
        query: an id of the query. It is new with each new checkpoint, since batch numbers then
            begin anew.
        number: 0 or more; a later batch has a greater number.
        parts: how many parts each batch of this query is cut into, always the same.
    """

    query: str = attrs.field(validator=_check_query)
    number: int = attrs.field(validator=_check_number)
    parts: int = attrs.field(validator=_check_parts)
