"""Read and write the names of the scheme `first`.

A name says which roles stay with rank 0, and which scheme the others follow:

    first                               every role
    first:leader,poller                 these roles; the others follow `jump`
    first:leader,poller|balanced:8      these roles; the others follow `balanced:8`

A scheme has one spelling, since members compare schemes by name. So the roles are percent-encoded
as in keys, sorted, and each is there once; `|jump` is left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from rink.core import keys

FIRST = "first"
REST = "jump"
"""Scheme of the other roles, unless the name says more."""

NAME_LIMIT_BYTES = 4_096
"""Largest size of such a name. Each share in each record has the name."""


def is_first(name: str) -> bool:
    """Return whether a name belongs, or was meant to belong, to `first`."""
    return name == FIRST or name.startswith((f"{FIRST}:", f"{FIRST}|"))


def text_of(roles: Iterable[str], rest: str = REST) -> str:
    """Return the one spelling for some roles, and the scheme of the others."""
    listed = f"{FIRST}:{','.join(sorted({keys.encode_name(role) for role in roles}))}"
    return listed if rest == REST else f"{listed}|{rest}"


@lru_cache(maxsize=64)
def parse(name: str) -> tuple[frozenset[str] | None, str]:
    """Return the roles that stay with rank 0, and the scheme of the others.

    The roles are None for the name `first`, which means every role. A ValueError says why the name
    does not belong to this scheme.
    """
    if name == FIRST:
        return None, REST
    if len(name.encode(errors="replace")) > NAME_LIMIT_BYTES:
        raise ValueError(f"it takes more than {NAME_LIMIT_BYTES} bytes")
    listed, _, rest = name.removeprefix(f"{FIRST}:").partition("|")
    segments, rest = [segment for segment in listed.split(",") if segment], rest or REST
    if not name.startswith(f"{FIRST}:") or not segments or is_first(rest):
        raise ValueError(
            "after 'first:' come one or more roles, separated by commas, and perhaps '|' and the "
            "scheme of the other roles, which is not 'first'"
        )
    roles = [keys.decode_name(segment) or segment for segment in segments]
    try:
        spelling = text_of(roles, rest)
    except UnicodeEncodeError as error:
        raise ValueError(f"it is not valid unicode: {error}") from error
    if name != spelling:
        raise ValueError(
            f"its roles are percent-encoded, sorted and without duplicates: write {spelling!r}"
        )
    return frozenset(roles), rest
