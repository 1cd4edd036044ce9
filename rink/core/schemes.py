"""Map roles to ranks by named schemes, and register custom ones.

A scheme is a pure function with a name. Versions and records in etcd contain the name. Two
members that read the same name must compute the same ranks, because the no-overlap promise depends
on it. Hence a name has exactly one spelling, and a custom scheme's name contains its version and a
hash over samples of its ranks.

Deliberately absent: locks. The registry is a dictionary with single, atomic reads and writes. The
tables of `balanced` are immutable, and at worst computed twice. A user's function is called with no
lock held.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import lru_cache, partial
from types import CodeType, FunctionType, MethodType
from typing import Protocol

import attrs

from rink.core import first_scheme_name
from rink.core.hashing import fnv1a64, jump_hash
from rink.errors import ConfigError

MAX_PARTITIONS = 100_000
"""The largest P of `balanced:P`: its tables take 4 MB and a fifth of a second."""

MAX_SIZE = 2**31 - 1
"""The largest number of ranks: Go's jump hash returns 32 bits."""

SchemeFunction = Callable[[str, int], int]
"""A custom scheme: (role, size) -> rank, with size ≥ 1 and 0 ≤ rank < size."""


class UnknownScheme(ConfigError):  # noqa: N818 - named as the other public errors are
    """Report that a scheme cannot be computed here, and why."""


class SchemeFailed(ConfigError):  # noqa: N818 - named as the other public errors are
    """Report that a custom scheme gave no rank for a role and a size."""


class Scheme(Protocol):
    """Map roles to ranks, as a named pure function.

    Any thread may call it.
    """

    @property
    def name(self) -> str:
        """Return the one spelling under which every member finds this scheme."""

    def rank(self, role: str, size: int) -> int | None:
        """Return the rank of a role, as `rank_of` does.

        The size is 0 to `MAX_SIZE`, which is not checked here.

        Raises:
            SchemeFailed: a custom scheme's function raised, or returned no such rank.
        """


@attrs.frozen
class _Jump:
    """Map roles by FNV-1a 64 and then jump hash, as Go Rink does."""

    name: str = "jump"

    def rank(self, role: str, size: int) -> int | None:
        return jump_hash(fnv1a64(role), size) if size else None


@attrs.frozen
class _Balanced:
    """Spread the partitions `…/0` to `…/P-1` evenly; map others by `jump`."""

    name: str
    partitions: int

    def rank(self, role: str, size: int) -> int | None:
        _, slash, index = role.rpartition("/")
        # The length comes first: int() of very many digits is slow, or raises.
        if not slash or len(index) > len(str(MAX_PARTITIONS)) or not _CANONICAL.fullmatch(index):
            return JUMP.rank(role, size)
        partition = int(index)
        if partition >= self.partitions:
            return JUMP.rank(role, size)
        return _balanced_rank(self.partitions, partition, size) if size else None


@attrs.frozen
class First:
    """Give some or all roles rank 0; they move only when its member goes.

    `roles` is None for all roles. `rest` is the scheme of the other roles.
    """

    name: str
    roles: frozenset[str] | None
    rest: Scheme

    def rank(self, role: str, size: int) -> int | None:
        """Return the rank of a role, as `Scheme` says."""
        if self.roles is None or role in self.roles:
            return 0 if size else None
        return self.rest.rank(role, size)


@attrs.frozen
class _Custom:
    """Call a user's function, and check each rank that it returns."""

    name: str
    function: SchemeFunction

    def rank(self, role: str, size: int) -> int | None:
        return _call(self.function, self.name, role, size) if size else None


JUMP: Scheme = _Jump()

_CANONICAL = re.compile(r"0|[1-9][0-9]*")
_BALANCED = re.compile(r"balanced:([1-9][0-9]*)")
_WORD = re.compile(r"[A-Za-z0-9_.-]+")
_custom: dict[str, _Custom] = {}


def find(name: str) -> Scheme:
    """Return the scheme of a name, or raise UnknownScheme.

    The name is `jump`, `balanced:P`, a name as in `rink.core.first_scheme_name`, or the full name
    of a registered scheme. P is a decimal without leading zeros, 1 ≤ P ≤ `MAX_PARTITIONS`.
    """
    if name == JUMP.name:
        return JUMP
    if not isinstance(name, str):
        raise UnknownScheme(f"a scheme's name is a str, not {type(name).__name__}")
    if (custom := _custom.get(name)) is not None:
        return custom
    if first_scheme_name.is_first(name):
        return _first(name)
    if not name.startswith("balanced:"):
        raise UnknownScheme(
            f"scheme {name!r} is not known here: it is none of 'jump', 'first' and 'balanced:P', "
            f"and this process has registered no scheme of that name, version and behaviour"
        )
    match = _BALANCED.fullmatch(name)
    # The length comes first, as above: the name may come from another member's record.
    if match is None or len(match[1]) > len(str(MAX_PARTITIONS)) or int(match[1]) > MAX_PARTITIONS:
        raise UnknownScheme(
            f"scheme {name!r} is not known here: after 'balanced:' comes the number of "
            f"partitions, 1 to {MAX_PARTITIONS}, in digits without leading zeros"
        )
    return _Balanced(name, int(match[1]))


def _first(name: str) -> Scheme:
    try:
        roles, rest = first_scheme_name.parse(name)
    except ValueError as error:
        raise UnknownScheme(f"scheme {name[:80]!r} is not known here: {error}") from error
    return First(name, roles, find(rest))


def count() -> int:
    """Return how many custom schemes this process has registered."""
    return len(_custom)


def partitions_of(name: str) -> int:
    """Return the P of `balanced:P` or `first:…|balanced:P`, or else 0."""
    match = _BALANCED.fullmatch(_rest(name))
    return int(match[1]) if match and can_follow(name) else 0


def _rest(name: str) -> str:
    """Return the scheme that a member must know to follow this one.

    For `first:…|mine@1#…` that is the part after `|`, and for any other name the name itself.
    """
    if not first_scheme_name.is_first(name):
        return name
    try:
        return first_scheme_name.parse(name)[1]
    except ValueError:
        return name


def can_follow(name: str) -> bool:
    """Return whether this process can compute the scheme of that name."""
    try:
        find(name)
    except UnknownScheme:
        return False
    return True


def follows(listed: Collection[str], name: str) -> bool:
    """Return whether a member can follow a scheme, by its record.

    A member lists the schemes that it prefers, and the custom ones that it knows. Every member
    knows the built-in ones with any parameter, so they need not be listed. The answer must be the
    same in every process. So a custom scheme that is known here, but not listed, does not count.
    """
    known = _rest(name)
    return known in map(_rest, listed) or (known not in _custom and can_follow(known))


def rank_of(role: str, size: int, scheme: str = "jump") -> int | None:
    """Return the rank that owns a role.

    This is for programs that compute owners outside a Rink.

    Args:
        role: The role's name; the empty name has a rank too, though no group grants it.
        size: The number of ranks, 0 ≤ size ≤ 2**31 - 1.
        scheme: A scheme's name, see `find`.

    Returns:
        0 ≤ rank < size; None if, and only if, size is 0.

    Raises:
        ConfigError: The role is not a str or has no UTF-8 form, or the size is out of range.
        UnknownScheme: There is no such scheme in this process.
        SchemeFailed: A custom scheme's function raised, or returned no such rank.
    """
    if not isinstance(role, str):
        raise ConfigError(f"a role's name is a str, not {type(role).__name__}: {role!r}")
    if isinstance(size, bool) or not isinstance(size, int):
        raise ConfigError(f"the size is an int, not {type(size).__name__}: {size!r}")
    if not 0 <= size <= MAX_SIZE:
        raise ConfigError(f"the size is 0 to {MAX_SIZE}, not {size}")
    try:
        role.encode()
        return find(scheme).rank(role, size)
    except UnicodeEncodeError as error:
        raise ConfigError(f"the role's name {role!r} has no UTF-8 form: {error}") from error


def register(function: SchemeFunction, name: str, version: str | int) -> str:
    """Register a function of yours as a scheme of this process.

    Every member of the group must register the same function. It must be pure and total: it returns
    the same rank for the same role and size, in every process, on every machine, for any role. It
    is called here on fixed samples, whose hash becomes part of the scheme's name. So other code is
    another scheme if the samples show the difference. They cannot show every difference, so raise
    the version with each change.

    Register the function before you join. An idle member that has joined uses it from the next
    change of its group on. Registering the same code again changes nothing, so a module may be
    imported twice. Other code under the same name and version is refused.

    Args:
        function: (role, size) -> rank, with size ≥ 1 and 0 ≤ rank < size; called on any
            thread, and on several at once.
        name: One or more of `A-Z a-z 0-9 _ . -`.
        version: The function's version: a number, or the same characters.

    Returns:
        The scheme's full name, such as `mine@2#1f3a9c04b7de`, for `Rink(scheme=…)`.

    Raises:
        ConfigError: The function cannot be called, the name or version has other characters,
            two calls with the same role and size gave two ranks, or other code was registered
            under this name and version before.
        SchemeFailed: The function raised, or returned no rank, on a sample.
    """
    if not callable(function):
        raise ConfigError(f"a scheme is a function (role, size) -> rank, not {function!r}")
    if not _is_word(name):
        raise ConfigError(f"a scheme's name consists of A-Z a-z 0-9 _ . - and is not {name!r}")
    if isinstance(version, bool) or not _is_word(str(version)):
        raise ConfigError(
            f"scheme {name!r} needs a version of A-Z a-z 0-9 _ . - and not {version!r}"
        )
    label = f"{name}@{version}"
    ranks = _sample(function, label)
    if ranks != _sample(function, label):
        raise ConfigError(
            f"scheme {label!r} is not pure: asked twice for the same roles and sizes, "
            f"it gave different ranks"
        )
    digest = hashlib.sha256(",".join(map(str, ranks)).encode()).hexdigest()
    full = f"{label}#{digest[:12]}"
    # The first registration stays, because a group may be using it at this moment.
    before = [scheme for scheme in [*_custom.values()] if scheme.name.startswith(f"{label}#")]
    first = before[0] if before else _custom.setdefault(full, _Custom(full, function))
    if first.name != full or _code(first.function) != _code(function):
        raise ConfigError(
            f"scheme {label!r} was registered before with other code ({first.function!r}, and now "
            f"{function!r}): raise the version, or give one of them another name"
        )
    return full


def _code(value: object) -> object:
    """Return the comparable parts of a function.

    These are its code, its defaults, and the values that it closes over. A module that is imported
    twice makes other functions of the same code, and these must be equal here. So lines and names
    are left out. Values that cannot be compared reliably are left out as well, such as instances
    and the values of global names.
    """
    match value:
        case object(__wrapped__=wrapped):  # for example by functools.cache
            return _code(wrapped)
        case MethodType():
            return _code(value.__func__)
        case partial():
            return (_code(value.func), *map(_code, (*value.args, *value.keywords.values())))
        case FunctionType():
            defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
            return tuple(map(_code, (value.__code__, *defaults, *_closed_over(value))))
        case CodeType():
            return (value.co_code, value.co_names, *map(_code, value.co_consts))
        case tuple():
            return tuple(map(_code, value))
        case frozenset():
            return frozenset(map(_code, value))
        case None | bool() | int() | float() | str() | bytes():
            return type(value), repr(value)
    return type(value).__qualname__


def _closed_over(function: FunctionType) -> list[object]:
    """Return the values that a function closes over.

    For a function among them it is the code, since a function may close over itself.
    """
    values = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # an empty cell
            values.append(getattr(cell.cell_contents, "__code__", cell.cell_contents))
    return values


def _is_word(value: object) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


# These samples are part of every custom scheme's name, so a change here renames all of them.
_SAMPLE_SIZES = (1, 2, 3, 4, 5, 7, 8, 10, 16, 31, 64, 100, 1000)
_SAMPLE_ROLES = (
    *("leader", "test", "BTC/ETH", "job 17", "Ünïcode", "日本語", "🛷", "..", "%2F", "x" * 200),
    *(f"orders/{index}" for index in range(32)),
    *(f"job-{index}" for index in range(32)),
)


def _sample(function: SchemeFunction, label: str) -> list[int]:
    return [_call(function, label, role, size) for size in _SAMPLE_SIZES for role in _SAMPLE_ROLES]


def _call(function: SchemeFunction, name: str, role: str, size: int) -> int:
    try:
        rank = function(role, size)
    except Exception as error:
        raise SchemeFailed(
            f"scheme {name!r} raised {type(error).__name__} for role {role!r} and "
            f"size {size}: {error}"
        ) from error
    if not _is_rank(rank, size):
        raise SchemeFailed(
            f"scheme {name!r} returned {rank!r} for role {role!r} and size {size}: "
            f"a rank is an int from 0 to {size - 1}"
        )
    return rank


def _is_rank(value: object, size: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < size


def _balanced_rank(partitions: int, partition: int, size: int) -> int:
    # Invariant: a path lists in ascending order the ranks that own the partition as ranks are
    # added. So the owner among `size` ranks is the last one below `size`.
    #
    # The table's size is rounded up to a power of two, so a group that grows by one finds its table
    # ready. Ranks beyond the number of partitions own nothing and change nothing.
    starts, ranks = _balanced_paths(partitions, min(partitions, 1 << (size - 1).bit_length()))
    start = starts[partition]
    return ranks[bisect_left(ranks, size, start, starts[partition + 1]) - 1]


@lru_cache(maxsize=16)
def _balanced_paths(partitions: int, size: int) -> tuple[array[int], array[int]]:
    """Return each partition's path through the ranks.

    A path lists the ranks that own the partition, one after the other, while ranks are added. A
    partition only moves to the rank just added, so a path is an ascending list of ranks, as in jump
    hash. So one table answers every size up to its own.

    With n ranks, the ranks below P mod n own one partition more than the others. Rank n then takes
    P // (n + 1) partitions, each from the fullest rank, and among equals from the highest. That is
    from P mod n - 1 downwards, then from n - 1 downwards, again and again. Each rank gives its
    highest-numbered partition. The n + 1 ranks then have the same shape as before. Rank n must get
    that many, and nothing else moves, so no balanced scheme moves fewer. Removing a rank is the
    same step backwards. Runnel does the same for two workers.

    The work is P (1 + 1/2 + … + 1/size): 0.2 s for 100,000 partitions and 1,000 ranks.

    Returns:
        All paths in one array, and P + 1 offsets at which each of them starts and ends.
    """
    paths = [[0] for _ in range(partitions)]
    held = [list(range(partitions))]
    for new in range(1, size):
        fullest = partitions % new - 1
        taken = [held[(fullest - step) % new].pop() for step in range(partitions // (new + 1))]
        for partition in taken:
            paths[partition].append(new)
        held.append(sorted(taken))
    starts, ranks = array("L", [0]), array("L")
    for path in paths:
        ranks.extend(path)
        starts.append(len(ranks))
    return starts, ranks
