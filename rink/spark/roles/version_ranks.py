"""Prepare a version for mapping roles, and compute the next version.

The module is pure and uses neither Spark nor etcd. `rink.core.ranks.plan` alone decides which
member takes which rank, as it does for the group's coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from rink.core import ranks as ranking
from rink.core import schemes
from rink.core.keys import check_name
from rink.core.member_record import Phase
from rink.core.ranks import Candidate, RankSettings, Situation
from rink.core.schemes import MAX_SIZE, Scheme
from rink.core.values import Version
from rink.core.view import View
from rink.errors import ConfigError, StateError
from rink.spark.roles import rank_arrays


class Ranked(Protocol):
    """Describe a `rink.core.values.Version`, or an object with its attributes."""

    @property
    def ranks(self) -> Sequence[str]:
        """Return the member of each rank."""

    @property
    def scheme(self) -> str:
        """Return the scheme's name."""

    @property
    def pins(self) -> Mapping[str, str]:
        """Return the member to which each role is pinned, ranked or not."""


@attrs.frozen
class Standing:
    """Hold a group's current state, which is `Ranked`, too.

    Attributes:
        version: the newest version.
        waiting: the members without a rank that may get a rank, the oldest first.
        leaving: the ranked members that will lose their ranks: they are gone, or already leaving.
    """

    version: Version
    waiting: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()

    @classmethod
    def of(cls, view: View, group: str) -> Standing:
        """Return the state of a group from a view of etcd.

        Raises:
            StateError: the group has no version, or a version that cannot be read.
        """
        version = view.version
        if version is None:
            why = "cannot be read" if view.newest else "is not there yet"
            raise StateError(
                f"the newest version of group {group!r} {why}: run `rink status` for details"
            )
        usable = [
            member.name
            for member in view.by_age
            if member.record is not None
            and member.is_active
            and schemes.follows(member.record.schemes, version.scheme)
        ]
        return cls(
            version=version,
            waiting=tuple(name for name in usable if name not in version.ranks),
            leaving=tuple(name for name in version.ranks if name not in usable),
        )

    @property
    def ranks(self) -> Sequence[str]:
        """Return the member of each rank in the newest version."""
        return self.version.ranks

    @property
    def scheme(self) -> str:
        """Return the scheme's name."""
        return self.version.scheme

    @property
    def pins(self) -> Mapping[str, str]:
        """Return the member to which each role is pinned."""
        return self.version.pins


@attrs.frozen
class RoleMap:
    """Map roles to owners; executors get copies.

    A map holds the scheme itself, not its name, since executors have registered no schemes. `ranks`
    is empty if only a size is known. `pins` maps roles to the ranks of ranked members.
    """

    size: int
    scheme: Scheme
    ranks: tuple[str, ...] = ()
    pins: Mapping[str, int] = attrs.field(factory=dict, hash=False)

    @classmethod
    def of(cls, source: int | Ranked, scheme: str = "jump") -> RoleMap:
        """Check a size or a version, and return its map.

        Raises:
            ConfigError: `source` is neither a size nor a version, the size is out of range, a
                member has two ranks, or `scheme` is not the version's scheme.
            UnknownScheme: there is no such scheme in this process.
        """
        if isinstance(source, int):
            rank_arrays.check_size(source)
            return cls(source, schemes.find(scheme))
        for field in ("ranks", "scheme", "pins"):
            if not hasattr(source, field):
                raise ConfigError(
                    "roles are mapped by a number of ranks or by a version, not by "
                    f"{type(source).__name__}: it has no {field!r}"
                )
        if scheme not in ("jump", source.scheme):
            raise ConfigError(
                f"the version's scheme is {source.scheme!r}, not {scheme!r}: leave out the scheme"
            )
        at = {name: rank for rank, name in enumerate(source.ranks)}
        if len(at) < len(source.ranks) or len(at) > MAX_SIZE:
            raise ConfigError("a member has more than one rank in this version: name each once")
        pins = {role: at[name] for role, name in source.pins.items() if name in at}
        return cls(len(source.ranks), schemes.find(source.scheme), tuple(source.ranks), pins)

    def ranks_of(self, names: Any) -> Any:
        """Return the names' ranks by the scheme; see `rank_arrays.ranks`."""
        return rank_arrays.ranks(names, self.size, self.scheme)

    def both_ranks(self, after: RoleMap, names: Any) -> tuple[Any, Any]:
        """Return the ranks by this map and by `after`, hashing once if possible."""
        if self.scheme == after.scheme:
            return rank_arrays.both_ranks(names, self.size, after.size, self.scheme)
        return self.ranks_of(names), after.ranks_of(names)

    def both_owners(
        self, after: RoleMap, names: Any
    ) -> tuple[rank_arrays.Ranks, rank_arrays.Ranks]:
        """Return the owners' ranks by this map and by `after`."""
        ranks, then = self.both_ranks(after, names)
        owners = rank_arrays.owners
        return owners(names, ranks, self.pins), owners(names, then, after.pins)


def after(
    version: Ranked,
    leave: Iterable[str] = (),
    join: Iterable[str] = (),
    waiting: Iterable[str] = (),
) -> Version:
    """Return the version of a group after members leave and join.

    All delays are assumed to be over, and all changes to be seen at once, by the rules of
    `rink.core.ranks`. First, waiting members and joiners take the leavers' ranks, the lowest rank
    first. Then the group shrinks: ranks above the new size move into the holes. Then the members
    that still wait are appended.

    Args:
        version: the current version. A `Standing` also has waiting and leaving members.
        leave: members that leave, ranked or waiting.
        join: members that join, in this order.
        waiting: members of the group without a rank, the oldest first.

    Returns:
        The next version. Its number is one more, if the current number is known. Pins are kept.

    Raises:
        ConfigError: a leaver is not in the group, a joiner is in it already or has no legal name, a
            name is given twice, or no member would be left.
    """
    leave, join, waiting = tuple(leave), tuple(join), tuple(waiting)
    if isinstance(version, Standing):
        leave = tuple(dict.fromkeys((*version.leaving, *leave)))
        waiting = (*version.waiting, *waiting)
        version = version.version
    present = (*version.ranks, *waiting)
    _check(present, leave, join)
    phases = dict.fromkeys(leave, Phase.LEAVING)
    candidates = [
        Candidate(
            name, n, first_seen=0.0, rebalance_delay=0.0, phase=phases.get(name, Phase.ACTIVE)
        )
        for n, name in enumerate((*present, *join))
    ]
    if not any(candidate.is_usable for candidate in candidates):
        raise ConfigError("no member would be left: at least one has to stay or to join")
    settings = RankSettings(rebalance_delay=0.0, initial_delay=0.0)
    planned = ranking.plan(Situation(tuple(version.ranks), candidates), 0.0, settings)
    return Version(
        number=getattr(version, "number", 0) + 1,
        ranks=planned.ranks,
        scheme=version.scheme,
        pins=dict(version.pins),
        token_base=getattr(version, "token_base", 0),
        because=planned.because,
    )


def _check(present: Sequence[str], leave: Sequence[str], join: Sequence[str]) -> None:
    there = set(present)
    for name in leave:
        if name not in there:
            some = ", ".join(present[:8]) + (", …" if len(present) > 8 else "")
            raise ConfigError(
                f"member {name!r} is not in the group, so it cannot leave. Members: "
                f"{some or 'none'}"
            )
    for name in join:
        check_name("member", name)
        if name in there:
            raise ConfigError(f"member {name!r} is in the group already, so it cannot join")
    for names in (leave, join, present):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"member {twice[0]!r} is named twice: name each member once")
