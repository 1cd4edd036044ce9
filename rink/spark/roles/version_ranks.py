"""What a version says of roles, ready to be computed with; and the version after members come and
go.

Pure: neither Spark nor etcd. Who takes which rank is decided by `rink.core.ranks.plan` alone, as
the coordinator of the group has it decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import attrs

from rink.core import ranks as ranking
from rink.core import schemes
from rink.core.keys import check_name
from rink.core.ranks import Candidate, RankSettings, Situation
from rink.core.schemes import MAX_SIZE, Scheme
from rink.core.values import Phase, Version
from rink.core.view import View
from rink.errors import ConfigError, StateError
from rink.spark.roles import rank_arrays


class Ranked(Protocol):
    """A version of a group, or anything that says the same: `rink.core.values.Version` does."""

    @property
    def ranks(self) -> Sequence[str]:
        """The member of each rank."""

    @property
    def scheme(self) -> str:
        """The scheme's name."""

    @property
    def pins(self) -> Mapping[str, str]:
        """Role -> the member that it is pinned to, ranked or not."""


@attrs.frozen
class Standing:
    """A group as it stands: its newest version, and who has come or gone since; it is `Ranked`,
    too.

    Attributes:
        version: the newest.
        waiting: members without a rank that may be given one, longest there first.
        leaving: members with a rank that they will lose anyhow: gone, or leaving already.
    """

    version: Version
    waiting: tuple[str, ...] = ()
    leaving: tuple[str, ...] = ()

    @classmethod
    def of(cls, view: View, group: str) -> Standing:
        """Return that of a group that was read.

        Raises:
            StateError: It has no version, or one that cannot be read.
        """
        version = view.version
        if version is None:
            why = "cannot be read" if view.newest else "is not there yet"
            raise StateError(
                f"the newest version of group {group!r} {why}: `rink status` says more"
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
        """The member of each rank, by the newest version."""
        return self.version.ranks

    @property
    def scheme(self) -> str:
        """The scheme's name."""
        return self.version.scheme

    @property
    def pins(self) -> Mapping[str, str]:
        """Role -> the member that it is pinned to."""
        return self.version.pins


@attrs.frozen
class RoleMap:
    """From a role to its owner: this is what is shipped to executors.

    The scheme is held itself, not by its name: executors have registered none. `ranks` is empty
    where only a size is known. `pins` holds ranks, and only of members that are ranked.
    """

    size: int
    scheme: Scheme
    ranks: tuple[str, ...] = ()
    pins: Mapping[str, int] = attrs.field(factory=dict, hash=False)

    @classmethod
    def of(cls, given: int | Ranked, scheme: str = "jump") -> RoleMap:
        """Check a size or a version.

        Raises:
            ConfigError: It is neither, the size is out of range, a rank is no name or there twice,
                or another scheme is asked for than the version's.
            UnknownScheme: There is no such scheme in this process.
        """
        if isinstance(given, int):
            rank_arrays.check_size(given)
            return cls(given, schemes.find(scheme))
        for field in ("ranks", "scheme", "pins"):
            if not hasattr(given, field):
                raise ConfigError(
                    "what maps roles is a number of ranks or a version, not "
                    f"{type(given).__name__}: it has no {field!r}"
                )
        if scheme not in ("jump", given.scheme):
            raise ConfigError(f"the version's scheme is {given.scheme!r}, not {scheme!r}")
        at = {name: rank for rank, name in enumerate(given.ranks)}
        if len(at) < len(given.ranks) or len(at) > MAX_SIZE:
            raise ConfigError("a member has more than one rank in this version")
        pins = {role: at[name] for role, name in given.pins.items() if name in at}
        return cls(len(given.ranks), schemes.find(given.scheme), tuple(given.ranks), pins)

    def ranks_of(self, names: Any) -> Any:
        """The ranks by the scheme, a pyarrow int32 Array: see `hashing.ranks`."""
        return rank_arrays.ranks(names, self.size, self.scheme)

    def both_ranks(self, after: RoleMap, names: Any) -> tuple[Any, Any]:
        """The ranks by this map and by another one: names are hashed once where that will do."""
        if self.scheme == after.scheme:
            return rank_arrays.both_ranks(names, self.size, after.size, self.scheme)
        return self.ranks_of(names), after.ranks_of(names)

    def both_owners(
        self, after: RoleMap, names: Any
    ) -> tuple[rank_arrays.Ranks, rank_arrays.Ranks]:
        """The ranks of the owners by this map and by another one: see `hashing.owners`."""
        ranks, then = self.both_ranks(after, names)
        return rank_arrays.owners(names, ranks, self.pins), rank_arrays.owners(
            names, then, after.pins
        )


def after(
    version: Ranked,
    leave: Iterable[str] = (),
    join: Iterable[str] = (),
    waiting: Iterable[str] = (),
) -> Version:
    """The version that a group comes to when members leave and join, every delay being over.

    By the rules of `rink.core.ranks`, as for members that are all seen at once: who waits takes a
    leaver's rank, lowest rank first; then the group shrinks, ranks above the new size moving into
    the holes; then who still waits is appended. So a joiner takes a leaver's rank, as it does when
    it joins before the other leaves.

    Args:
        version: Today's. A `Standing` knows who waits and who leaves already.
        leave: Members that leave, ranked or waiting.
        join: Members that join, in the order in which they do.
        waiting: Members that are there already and have no rank, longest first.

    Returns:
        The next version: its number is one more where that of today's is known, and pins are kept.

    Raises:
        ConfigError: A leaver is not there, a joiner is there already or has no legal name, a name
            is given twice, or nobody would be left.
    """
    leave, join, waiting = tuple(leave), tuple(join), tuple(waiting)
    if isinstance(version, Standing):
        leave = tuple(dict.fromkeys((*version.leaving, *leave)))
        waiting = (*version.waiting, *waiting)
        version = version.version
    present = (*version.ranks, *waiting)
    _check(present, leave, join)
    candidates = [
        Candidate(
            name,
            number,
            first_seen=0.0,
            rebalance_delay=0.0,
            phase=Phase.LEAVING if name in leave else Phase.ACTIVE,
        )
        for number, name in enumerate((*present, *join))
    ]
    if not any(one.is_usable for one in candidates):
        raise ConfigError("nobody would be left: at least one member has to stay or to join")
    settings = RankSettings(rebalance_delay=0.0, initial_delay=0.0)
    situation = Situation(tuple(version.ranks), candidates)
    planned = ranking.plan(situation, 0.0, settings)
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
                f"member {name!r} is not in the group, so it cannot leave: {some or '-'}"
            )
    for name in join:
        check_name("member", name)
        if name in there:
            raise ConfigError(f"member {name!r} is in the group already, so it cannot join")
    for names in (leave, join, present):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"member {twice[0]!r} is named twice")
