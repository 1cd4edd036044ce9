"""Keep the roles that user code waits for, sorted by the share.

A process may wait for 100,000 roles, most of them other members' roles. So a role is sorted once
for each share, and from then on only the roles of the share are tried. The invariant, at any time:

    each role that is waited for is in `unsorted`, or in `mine`, or lies outside of `share`

It holds because a role enters by `unsorted`, and only `sort` takes it out of there, when it has
sorted it. A look while the gate is closed sorts nothing, so a wait that begins meanwhile is not
forgotten. If anything but a change of records frees a role, the role is put into `unsorted` again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping
from typing import Protocol, TypeVar

import attrs

from rink.core.member_record import Share
from rink.core.placement import Placement

REPORT_AFTER_S = 10.0
"""Time until a wait is reported, in seconds."""


class Waiter(Protocol):
    """Wait for one role; `Waits` needs nothing else of a handle."""

    role: str


W = TypeVar("W", bound=Waiter)


@attrs.define(eq=False)
class Waits(Mapping[str, list[W]]):
    """Map each role to the handles that wait for it.

    Every method is called with the engine's lock held.

    The roles were last sorted by `share`. `unsorted` and `mine` are ordered sets. `_since` says
    since when each role is awaited, oldest first, until the wait is reported.
    """

    share: Share | None = None
    unsorted: dict[str, None] = attrs.field(factory=dict)
    mine: dict[str, None] = attrs.field(factory=dict)
    _unseen: dict[str, None] = attrs.field(factory=dict)
    _since: OrderedDict[str, float] = attrs.field(factory=OrderedDict)
    _handles: dict[str, list[W]] = attrs.field(factory=dict)

    def __getitem__(self, role: str) -> list[W]:
        return self._handles[role]

    def __contains__(self, role: object) -> bool:
        return role in self._handles

    def __iter__(self) -> Iterator[str]:
        return iter(self._handles)

    def __len__(self) -> int:
        return len(self._handles)

    def add(self, handle: W) -> None:
        """Register a handle as waiting for its role."""
        waiting = self._handles.get(handle.role)
        if waiting:
            waiting.append(handle)
            self.try_again(handle.role)  # this handle may accept a lower token than the others
            return
        # In this order: a signal handler may raise in between, and the wait must not be forgotten.
        self.unsorted[handle.role] = self._unseen[handle.role] = None
        self._handles[handle.role] = [handle]

    def discard(self, handle: W) -> None:
        """Stop a handle from waiting, if it waits."""
        waiting = self._handles.get(handle.role)
        if waiting is None:
            return
        if handle in waiting:
            waiting.remove(handle)
        if not waiting:  # also if a signal handler raised between `remove` and here before
            self.end(handle.role)

    def end(self, role: str) -> list[W]:
        """End every wait for a role, and return the handles."""
        handles = self._handles.pop(role, [])  # first, as in `add`
        for roles in (self.unsorted, self.mine, self._unseen, self._since):
            roles.pop(role, None)
        return handles

    def lasting(self, now: float) -> tuple[list[str], float | None]:
        """Return the roles that have been awaited long, and when to look again.

        A wait counts from the first look that sees it. Each role is returned once.
        """
        for role in self._unseen:
            self._since[role] = now
        self._unseen = {}
        lasting: list[str] = []
        while self._since:
            role, since = next(iter(self._since.items()))
            if now < since + REPORT_AFTER_S:
                return lasting, since + REPORT_AFTER_S
            del self._since[role]
            lasting.append(role)
        return lasting, None

    def clear(self) -> list[W]:
        """End every wait, and return the handles."""
        return [handle for role in list(self._handles) for handle in self.end(role)]

    def sort(self, share: Share, placement: Placement, unplaced: Collection[str]) -> list[str]:
        """Sort the new roles, or all of them by a new share.

        Return the sorted roles that are to be tried, which are in `mine` from now on. They lie in
        the share, or their scheme fails for them and they will be refused. The next call sorts the
        `unplaced` roles.
        """
        if share != self.share:
            self.share = share
            self.unsorted, self.mine = dict.fromkeys(self._handles), {}
        for role in unplaced:
            if role in self.mine:  # sorted already, but not placed by a new scheme or size
                del self.mine[role]
                self.unsorted[role] = None
        unsorted, self.unsorted = self.unsorted, {}
        can_sort = placement.can_follow(share.scheme)
        new: list[str] = []
        for role in unsorted:
            if not can_sort or role in unplaced:
                self.unsorted[role] = None
                continue
            is_mine = placement.has(share, role)  # first, because this call notes a failure
            failed = placement.failure(role, share.scheme, share.size)
            if role in self._handles and (is_mine or failed is not None):
                self.mine[role] = None
                new.append(role)
        return new

    def all_mine(self) -> list[str]:
        """Return every awaited role of the share."""
        # A new dict, because one that has lost most of its entries is as slow to iterate as before.
        self.mine = dict.fromkeys(self.mine)
        return list(self.mine)

    def try_again(self, role: str) -> None:
        """Try a role again at the next look, if it is awaited."""
        if role in self._handles:
            self.unsorted[role] = None
