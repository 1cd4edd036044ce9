"""Keep states of a member, and bring them back.

Mutable parts are copied, and frozen parts are shared. A pickle keeps the identities within one
state (a `Gate` is looked up by identity). Frozen values stay the very same objects, which makes
bringing a state back several times as quick.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from rink.core.claims import Gate, Obstacles
from rink.core.member import MemberSettings
from rink.core.member_record import MemberRecord, Share
from rink.core.placement import Placement
from rink.core.ranks import RankSettings
from rink.core.record_index import Records, RecordStanding, Roster
from rink.core.values import Member, Proclaimed, Version
from rink.core.view import View

SHARED = (
    Gate,
    Obstacles,
    MemberSettings,
    Placement,
    RankSettings,
    Member,
    Proclaimed,
    MemberRecord,
    Share,
)
SHARED += (Version, View, Records, Roster, RecordStanding)
"""Frozen, but for a placement, which is a memory of a pure function."""


class Snapshots:
    """Keep states of one member, each under a number."""

    def __init__(self) -> None:
        self._kept: list[bytes] = []
        self._shared: list[Any] = []
        self._numbers: dict[int, int] = {}

    def keep(self, state: Any) -> int:
        """Keep a state; its number."""
        file = io.BytesIO()
        pickler = pickle.Pickler(file, pickle.HIGHEST_PROTOCOL)
        pickler.persistent_id = self._number  # type: ignore[method-assign]
        pickler.dump(state)
        self._kept.append(file.getvalue())
        return len(self._kept) - 1

    def bring_back(self, number: int) -> Any:
        """Return a copy of a state."""
        unpickler = pickle.Unpickler(io.BytesIO(self._kept[number]))
        unpickler.persistent_load = self._shared.__getitem__  # type: ignore[method-assign]
        return unpickler.load()

    def _number(self, thing: Any) -> int | None:
        if not isinstance(thing, SHARED):
            return self._numbers.get(id(thing))
        if id(thing) not in self._numbers:
            self._share(thing)
            if isinstance(thing, View):  # a member asks for the parts of a view by identity
                for part in (thing.members, thing.versions, thing.requests, thing.clutter):
                    self._share(part)
                self._share(thing.by_age)
        return self._numbers[id(thing)]

    def _share(self, thing: Any) -> None:
        if id(thing) not in self._numbers:
            self._numbers[id(thing)] = len(self._shared)
            self._shared.append(thing)  # kept, so that its id stays its own
