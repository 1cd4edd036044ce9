"""Describe a small world, and its allowance of faults."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import attrs

from rink.core.values import Request

FAULTS = (
    "lose request", "lose answer", "expire", "end lease", "kill", "restart", "relist", "delete",
    "look", "leave", "leave now", "unproclaim", "wipe", "restore", "pass on",
)  # fmt: skip


FAR_S = 8.0
"""Retries are at most 2 s away; what a member does by itself comes after 10 s at the earliest."""


@attrs.frozen
class Spec:
    """Describe a world to explore whole.

    `members` are processes; two that differ by a dash only (b and b') have one name. `script` lists
    the outside events, which come in this order and at any time. They are versions (their ranks)
    that an outsider proclaims once everybody has settled by the version before, or requests of an
    operator. If `versions` is set, there is no outsider: the members coordinate, and proclaim up to
    so many. `remains` are records that no member keeps, each with its lease: 0 for none, or one
    that etcd does not know.

    `purse` is how often each fault may happen, to the `victims` if some are named; `batches` also
    delivers several messages to a member in one step. With `halves`, anything may happen between
    the two halves of a step. User code may "pass on" a role: it waits for a greater token, and
    releases the role. User code of a member that `clings` never lets go of anything by itself.
    Alarms that are `far_s` away or further ring in the calm only.

    etcd may lose its history: it goes on from nothing ("wipe"), or from a copy of any earlier state
    ("restore"), under the same name and with its revision ahead. The `fresh` members are started
    after that, once no member holds a role by the old history any more. From then on nothing
    reaches a `cut_off` member except its own deadline. In an emptied etcd, the outsider's first
    version has the ranks `anew`.
    """

    name: str
    what: str
    members: tuple[str, ...] = ("a", "b")
    roles: tuple[str, ...] = ("x",)
    begin: tuple[str, ...] = ("a",)
    script: tuple[tuple[str, ...] | Request, ...] = ()
    versions: int = 0
    purse: dict[str, int] = attrs.field(factory=dict)
    settings: dict[str, Any] = attrs.field(factory=dict)
    late_joiners: tuple[str, ...] = ()
    victims: tuple[str, ...] = ()
    batches: bool = False
    halves: bool = False
    clings: tuple[str, ...] = ()
    remains: tuple[tuple[str, int], ...] = ()
    far_s: float = FAR_S
    fresh: tuple[str, ...] = ()
    cut_off: tuple[str, ...] = ()
    anew: tuple[str, ...] = ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the name that each of the members joins under."""
        return tuple(process.rstrip("'") for process in self.members)

    @property
    def has_outsider(self) -> bool:
        """Return whether versions come from the script, as no member coordinates."""
        return not self.versions

    def is_victim(self, name: str) -> bool:
        """Return whether faults may happen to a member."""
        return not self.victims or name in self.victims
