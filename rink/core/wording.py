"""Name records and lists of names in messages."""

from __future__ import annotations

from collections.abc import Sequence

from rink.core.values import Member

MAX_NAMED = 5
"""Largest number of names of a list that a sentence writes out."""


def describe(member: Member) -> str:
    """Return a description of a record for a message."""
    if member.record is None:
        return f"the record members/{member.name} (lease {member.lease:x}, {member.problem})"
    since = f" joined {member.record.joined}" if member.record.joined else ""
    where = f" at {member.record.address}" if member.record.address else ""
    which = f"incarnation {member.record.incarnation[:8]}, lease {member.lease:x}"
    return f"the record members/{member.name} ({which}{since}{where})"


def some(names: Sequence[str], between: str = ", ") -> str:
    """Return the first few names for a message, and the number of the rest."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return between.join(names[:MAX_NAMED]) + more
