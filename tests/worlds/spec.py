"""What a small world is made of, and how much may go wrong in it."""

from __future__ import annotations

from typing import Any

import attrs

FAULTS = (
    "lose request", "lose answer", "expire", "end lease", "kill", "restart", "relist", "delete",
    "look", "leave",
)  # fmt: skip


@attrs.frozen
class Spec:
    """A world to exhaust.

    `script` is the versions that an outsider proclaims after those which everybody has settled by;
    without one the members lead, and proclaim up to `versions`. `purse` is how often each fault may
    happen, to the `victims` where some are named; `batches` also has several messages reach a member
    in one step. User code of a member that `clings` never lets go of anything by itself.
    """

    name: str
    what: str
    members: tuple[str, ...] = ("a", "b")
    roles: tuple[str, ...] = ("x",)
    begin: tuple[str, ...] = ("a",)
    script: tuple[tuple[str, ...], ...] = ()
    versions: int = 0
    purse: dict[str, int] = attrs.field(factory=dict)
    settings: dict[str, Any] = attrs.field(factory=dict)
    late_joiners: tuple[str, ...] = ()
    victims: tuple[str, ...] = ()
    batches: bool = False
    clings: tuple[str, ...] = ()

    @property
    def has_outsider(self) -> bool:
        """Whether versions come from the script."""
        return not self.versions

    def is_victim(self, name: str) -> bool:
        """Whether faults may happen to a member."""
        return not self.victims or name in self.victims
