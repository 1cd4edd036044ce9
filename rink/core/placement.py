"""Which rank a role has under a scheme, remembered.

A scheme may be a user's function and may be slow, so it is never called under a lock: callers
compute on their own thread, the engine computes before it steps, and a step only reads.

A custom scheme that fails for a role has no rank for it here: nobody of this process gets it, and
whoever claims by that scheme and size stands in its way. Other roles go on: one name that a
function cannot take must not cost a member all it has.
"""

from __future__ import annotations

from collections.abc import Callable

from rink.core import schemes
from rink.core.schemes import SchemeFailed, UnknownScheme
from rink.core.values import Share

REMEMBERED = 1 << 20
"""How many roles are remembered per (scheme, size); callers add no more to a memory that is full.

Only the engine begins one anew, by `trim`, between its steps: a role that it has placed for a step
must not be forgotten in the midst of it, since the step would then call the scheme.
"""

_UNKNOWN = -1  # where a rank is not remembered: no rank is negative


class Placement:
    """A memory of ranks; a plain dict per (scheme, size), safe to read from any thread."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[str, int], dict[str, int | None]] = {}
        self.failed: dict[str, SchemeFailed] = {}
        """The last failure of each scheme that has failed."""

    def can_follow(self, scheme: str) -> bool:
        """Return whether the scheme is known here."""
        return schemes.can_follow(scheme)

    def ranks(self, scheme: str, size: int) -> dict[str, int | None]:
        """Return the memory of one (scheme, size), to read from directly."""
        return self._ranks.setdefault((scheme, size), {})

    def rank(self, role: str, scheme: str, size: int, *, bounded: bool = True) -> int | None:
        """Return the role's rank, or None.

        None: size is 0, or the scheme is unknown here or fails. Unless `bounded`, it is remembered
        in any case: for roles that a step will ask for.
        """
        ranks = self.ranks(scheme, size)
        rank = ranks.get(role, _UNKNOWN)
        if rank != _UNKNOWN:
            return rank
        try:
            rank = schemes.find(scheme).rank(role, size)
        except UnknownScheme:
            return None  # not remembered: it may be registered later
        except SchemeFailed as error:
            self.failed[scheme] = error
            rank = None
        if not bounded or len(ranks) < REMEMBERED:
            ranks[role] = rank
        return rank

    def has(self, share: Share | None, role: str) -> bool:
        """Return whether a share has the role."""
        return share is not None and share.has(role, self.rank(role, share.scheme, share.size))

    def failure(self, role: str, scheme: str, size: int) -> SchemeFailed | None:
        """Return why a scheme gave the role no rank.

        None where it was not asked, or gave one.
        """
        failed = self.failed.get(scheme)
        if failed is None or self.ranks(scheme, size).get(role, 0) is not None:
            return None
        return failed

    def trim(self, roles: Callable[[], set[str]]) -> None:
        """Begin each full memory anew, with the roles that are returned.

        The engine calls this between steps.
        """
        for ranks in tuple(self._ranks.values()):
            if len(ranks) >= REMEMBERED:
                kept = {role: ranks[role] for role in roles() if role in ranks}
                ranks.clear()
                ranks.update(kept)

    def forget_all_but(self, pairs: frozenset[tuple[str, int]]) -> None:
        """Forget the sizes and schemes that no share names any more."""
        for pair in tuple(self._ranks):  # other threads may add to it
            if pair not in pairs:
                self._ranks.pop(pair, None)
