"""Which rank a role has under a scheme, remembered.

A scheme may be a user's function and may be slow, so it is never called under a lock: callers
compute on their own thread, the engine computes before it steps, and a step only reads. A custom scheme that has failed once is one that cannot be followed any more: what
others hold by it claims everything.
"""

from __future__ import annotations

from rink.core import schemes
from rink.core.schemes import SchemeFailed

REMEMBERED = 1 << 20
"""How many roles are remembered per (scheme, size) before that memory is begun anew."""


class Placement:
    """A memory of ranks; a plain dict per (scheme, size), safe to read from any thread."""

    def __init__(self) -> None:
        self._ranks: dict[tuple[str, int], dict[str, int | None]] = {}
        self.failed: dict[str, SchemeFailed] = {}

    def can_follow(self, scheme: str) -> bool:
        """Whether the scheme is known here, and has not failed on any role so far."""
        return scheme not in self.failed and schemes.can_follow(scheme)

    def ranks(self, scheme: str, size: int) -> dict[str, int | None]:
        """Return the memory of one (scheme, size), to read from directly."""
        return self._ranks.setdefault((scheme, size), {})

    def rank(self, role: str, scheme: str, size: int) -> int | None:
        """Return the role's rank; None where size is 0 or the scheme cannot be followed here."""
        ranks = self.ranks(scheme, size)
        try:
            return ranks[role]
        except KeyError:
            pass
        if not self.can_follow(scheme):
            return None  # not remembered: it may be registered later
        try:
            rank = schemes.find(scheme).rank(role, size)
        except SchemeFailed as error:
            self.failed[scheme] = error
            return None
        if len(ranks) >= REMEMBERED:
            ranks.clear()
        ranks[role] = rank
        return rank

    def forget_all_but(self, pairs: set[tuple[str, int]]) -> None:
        """Drop what is remembered of sizes and schemes that no share names any more."""
        for pair in self._ranks.keys() - pairs:
            del self._ranks[pair]
