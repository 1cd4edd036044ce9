"""Remember which rank a role has under a scheme.

A scheme may be a user's function and may be slow, so it is never called under a lock. Callers
compute on their own thread, the engine computes before it steps, and a step only reads.

If a custom scheme fails for a role, the role has no rank here. No member of this process gets it,
and each claim by that scheme and size blocks it. Other roles go on, because one name that a
function fails on must not cost a member all of its roles.
"""

from __future__ import annotations

from collections.abc import Callable

from rink.core import schemes
from rink.core.member_record import Share
from rink.core.schemes import SchemeFailed, UnknownScheme

MAX_REMEMBERED = 1 << 20
"""Largest number of roles per (scheme, size). Callers add none to a full memory.

Only the engine begins a full memory anew, by `trim`, between its steps. A role that was placed for
a step must not be forgotten during it, since the step would then call the scheme.
"""

_UNKNOWN = -1  # a rank that is not remembered; no rank is negative


class Placement:
    """Remember ranks, in a plain dict per (scheme, size).

    Any thread may read and add. Two threads may compute the same rank at once, with the same
    result.
    """

    def __init__(self) -> None:
        self._ranks: dict[tuple[str, int], dict[str, int | None]] = {}
        self.failed: dict[str, SchemeFailed] = {}
        """Map each scheme that has failed to its last failure."""

    def can_follow(self, scheme: str) -> bool:
        """Return whether the scheme is known here."""
        return schemes.can_follow(scheme)

    def ranks(self, scheme: str, size: int) -> dict[str, int | None]:
        """Return the memory of one (scheme, size), to read from directly."""
        return self._ranks.setdefault((scheme, size), {})

    def rank(self, role: str, scheme: str, size: int, *, bounded: bool = True) -> int | None:
        """Return the role's rank, or None.

        None means that the size is 0, or that the scheme is unknown here or fails. Unless
        `bounded`, the rank is remembered even in a full memory, as a step needs it.
        """
        ranks = self.ranks(scheme, size)
        rank = ranks.get(role, _UNKNOWN)
        if rank != _UNKNOWN:
            return rank
        try:
            rank = schemes.find(scheme).rank(role, size)
        except UnknownScheme:
            return None  # not remembered, since the scheme may be registered later
        except SchemeFailed as error:
            self.failed[scheme] = error
            rank = None
        if not bounded or len(ranks) < MAX_REMEMBERED:
            ranks[role] = rank
        return rank

    def has(self, share: Share | None, role: str) -> bool:
        """Return whether a share has the role."""
        return share is not None and share.has(role, self.rank(role, share.scheme, share.size))

    def failure(self, role: str, scheme: str, size: int) -> SchemeFailed | None:
        """Return why a scheme gave the role no rank, or None if it gave one.

        It is None as well if the scheme was not called for the role.
        """
        failed = self.failed.get(scheme)
        if failed is None or self.ranks(scheme, size).get(role, 0) is not None:
            return None
        return failed

    def trim(self, roles: Callable[[], set[str]]) -> None:
        """Reduce each full memory to these roles, between two steps."""
        for ranks in tuple(self._ranks.values()):
            if len(ranks) >= MAX_REMEMBERED:
                kept = {role: ranks[role] for role in roles() if role in ranks}
                ranks.clear()
                ranks.update(kept)

    def forget_all_but(self, pairs: frozenset[tuple[str, int]]) -> None:
        """Forget the schemes and sizes that no share names any more."""
        for pair in tuple(self._ranks):  # a copy, since other threads may add pairs
            if pair not in pairs:
                self._ranks.pop(pair, None)
