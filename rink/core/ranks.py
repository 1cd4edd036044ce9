"""Plan the next ranks from today's ranks and the live records.

This is a pure function.

The steps, in this order (docs/concepts.md, "Who gets which rank"):

1. A ranked member that is live, active and can follow the scheme keeps its rank.
2. The other ranks go at once to the members that have waited longest. The ranks of members that
   are gone or cannot follow come first, then those of leaving members, each from the lowest rank
   up. Last come the ranks of offering members, the longest offer first. So if a rollout ends old
   processes one by one, the k-th newcomer takes the k-th offer, and each offer lasts only as long
   as one process takes to start.
3. If nobody waits, an offering member keeps its rank. A gone member's rank stays reserved for
   `leave_delay`, for the same name or any newcomer. A leaving member's rank is not reserved. But
   once no ranked member is active, all ranks stay reserved for the larger of `leave_delay` and
   `handover_wait`, because a rollout may end all old processes first.
4. Then the group shrinks. The members above the new size move into the holes, but only usable
   members move. If a member above the new size leaves or is gone, its rank is given up as well.
5. A waiting member is appended when its delay is over. Members whose delays end soon after, within
   a tenth of their `rebalance_delay`, are appended with it.

Without a usable member the ranks stay as they are, and the members that leave serve until the end.
An empty group ranks everyone at once. `stagger` bounds how many ranks one version may add, and how
many it may take from members that leave by plan. It limits neither the ranks of dead members, nor
the ranks that step 4 gives up as well. The waiting members are ordered by their create revisions.
Nothing here depends on the order of a dict. All times are readings of the caller's clock.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Mapping, Sequence

import attrs

from rink.core.member_record import Phase


@attrs.frozen
class Candidate:
    """Hold the inputs of ranking from a live record, and its first sighting.

    `first_seen` is a reading of the planner's monotonic clock (R9).
    """

    name: str
    create_revision: int
    first_seen: float
    rebalance_delay: float = 60.0
    phase: Phase = Phase.ACTIVE
    can_follow: bool = True

    @property
    def is_usable(self) -> bool:
        """Return whether the member may be given a rank."""
        return self.can_follow and self.phase is Phase.ACTIVE

    @property
    def is_offering(self) -> bool:
        """Return whether the member serves until another one takes its rank."""
        return self.can_follow and self.phase is Phase.OFFERING


@attrs.frozen
class RankSettings:
    """Hold the coordinator's settings, in seconds; `stagger` is in ranks."""

    rebalance_delay: float = 60.0
    initial_delay: float = 2.0
    leave_delay: float = 0.0
    handover_wait: float = 0.0
    stagger: int | None = None


@attrs.frozen
class Situation:
    """Hold the input of a plan.

    `gone_since` says when each missing member of `ranks` was first noticed gone. `offering_since`
    says when each offering member was first noticed to offer. `emptied_since` has the last time at
    which no ranked member was active, for each ranked member that has not been active since.
    `started_at` is when the planner saw the group start from empty, or None. `was_empty` says that
    no ranked member was live at some time since the newest version.
    """

    ranks: tuple[str, ...]
    members: Sequence[Candidate]
    gone_since: Mapping[str, float] = attrs.field(factory=dict)
    offering_since: Mapping[str, float] = attrs.field(factory=dict)
    emptied_since: Mapping[str, float] = attrs.field(factory=dict)
    started_at: float | None = None
    was_empty: bool = False
    settled: bool = True


@attrs.frozen
class Upcoming:
    """Hold when the ranks change if nothing happens before, and why.

    `at` is None if the change waits until the last version has settled.
    """

    at: float | None
    because: str


@attrs.frozen
class RankPlan:
    """Hold the next ranks, their causes, and the next change, if one follows."""

    ranks: tuple[str, ...]
    because: tuple[str, ...] = ()
    upcoming: Upcoming | None = None


STARTED = "started"
"""The cause that marks a version which starts a group from empty."""


def plan(situation: Situation, now: float, settings: RankSettings) -> RankPlan:
    """Return the next ranks. If no change is due, they stay, without causes."""
    # Invariant: a name is in the ranks once at most. `_replace` takes only waiting members, each
    # once, `_grow` takes only those left, and `_shrink` only drops and moves. So `version.ranks` is
    # always a valid version (see `rink.core.codec`).
    live = {member.name: member for member in situation.members}
    ranked = set(situation.ranks)
    waiting = sorted(
        (m for m in situation.members if m.is_usable and m.name not in ranked),
        key=lambda member: (member.create_revision, member.name),
    )
    starting = not any(name in live for name in situation.ranks)
    if not any(member.is_usable for member in situation.members):
        return RankPlan(situation.ranks)  # the members that leave serve until the end
    because: list[str] = []
    budget = _Stagger(settings.stagger, situation.settled)
    ranks = _replace(situation, live, waiting, budget, because)
    ranks, reserved = _shrink(ranks, situation, live, now, settings, budget, because)
    ranked = set(ranks)
    waiting = [member for member in waiting if member.name not in ranked]
    kept_back = (Phase.LEAVING, Phase.OFFERING) if waiting else (Phase.LEAVING,)
    leaving = [name for name in ranks if name in live and live[name].phase in kept_back]
    # With `stagger`, the members that have waited longest get the ranks of leaving members, with
    # the next versions. The group grows only for the other waiting members.
    growing = waiting[len(leaving) :]
    delayed = _grow(ranks, growing, situation, starting, now, settings, budget, because)
    if because and (starting or situation.was_empty):
        because.insert(0, STARTED)
    placed = {*ranks, *delayed}
    turns = [f"{name!r}, which leaves," for name in leaving]
    turns += [f"member {member.name!r}" for member in waiting if member.name not in placed]
    # A member whose delay ends before the last version has settled then waits for its turn, too.
    upcoming = _earliest_change(
        reserved if turns else [*reserved, *delayed.values()], turns, settings
    )
    return RankPlan(tuple(ranks), tuple(because), upcoming)


def _earliest_change(
    delays: Sequence[Upcoming], turns: Sequence[str], settings: RankSettings
) -> Upcoming | None:
    """Return the earliest change, or else the first turn, which has no time."""
    first = min(delays, key=lambda delay: delay.at or 0.0, default=None)
    if first is None and turns:
        text = f"{turns[0]} waits until the last version has settled: stagger of {settings.stagger}"
        return Upcoming(None, text)
    return first


class _Stagger:
    """Count the moves of either kind that `stagger` still allows.

    Before the last version has settled, it allows none.
    """

    def __init__(self, limit: int | None, settled: bool) -> None:
        allowed = float("inf") if limit is None else limit if settled else 0
        self.to_add = self.to_give_up = allowed


def _replace(
    situation: Situation,
    live: Mapping[str, Candidate],
    waiting: Sequence[Candidate],
    budget: _Stagger,
    because: list[str],
) -> list[str]:
    """Give the ranks of others to waiting members (steps 1 and 2)."""
    today, since = situation.ranks, situation.offering_since
    ranks, queue = list(today), list(waiting)
    turns = [
        (turn, since.get(name, 0.0), rank)
        for rank, name in enumerate(today)
        if (turn := _turn(live.get(name))) is not None
    ]
    for turn, _, rank in sorted(turns):
        if not queue:
            break
        if turn is not _Turn.UNSERVED:  # the member leaves by plan
            if not budget.to_give_up:
                break
            budget.to_give_up -= 1
        ranks[rank] = queue.pop(0).name
        why = _why_given(turn, live.get(today[rank]))
        because.append(f"replaced {today[rank]} by {ranks[rank]}: {why}")
    return ranks


class _Turn(enum.IntEnum):
    """Order the ranks that are given away, by how their members serve."""

    UNSERVED = 1
    LEAVING = 2
    OFFERED = 3


def _turn(member: Candidate | None) -> _Turn | None:
    """Return in which turn a rank is given away, or None if it is kept."""
    if member is not None and member.phase is Phase.LEAVING:
        return _Turn.LEAVING
    if member is None or not member.can_follow:
        return _Turn.UNSERVED
    return _Turn.OFFERED if member.phase is Phase.OFFERING else None


def _why_given(turn: _Turn, member: Candidate | None) -> str:
    if member is None:
        return "gone"
    return "cannot follow the scheme" if turn is _Turn.UNSERVED else member.phase.value


def _shrink(
    ranks: list[str],
    situation: Situation,
    live: Mapping[str, Candidate],
    now: float,
    settings: RankSettings,
    budget: _Stagger,
    because: list[str],
) -> tuple[list[str], list[Upcoming]]:
    """Drop the ranks that no member took and nothing reserves (steps 3, 4).

    Return the ranks, and until when the others are reserved.
    """
    leaving = [name for name in ranks if name in live and live[name].phase is Phase.LEAVING]
    offering = [name for name in ranks if name in live and live[name].is_offering]
    gone = [name for name in ranks if name not in live]
    lost = [name for name in ranks if name in live and not live[name].can_follow]
    kept = {
        name: _reserved_until(name, name in live, situation, now, settings)
        for name in [*gone, *leaving]
    }
    reserved = {name: Upcoming(at, why) for name, (at, why) in kept.items() if now < at}
    never_move = reserved.keys() | {*leaving, *offering}
    leaving = [name for name in leaving if name not in reserved]
    dropped = {*gone, *lost} - never_move
    dropped |= _turns(ranks, dropped, leaving, never_move, budget)
    because += [_why_dropped(name, live.get(name)) for name in ranks if name in dropped]
    closed = _with_movers_dropped(ranks, dropped, never_move)
    because += [
        f"gave up {name}: the group shrinks below its rank"
        for name in ranks
        if name in closed - dropped
    ]
    return _closed_up(ranks, closed), [reserved[name] for name in reserved if name not in closed]


def _reserved_until(
    name: str, is_live: bool, situation: Situation, now: float, settings: RankSettings
) -> tuple[float, str]:
    """Return until when a rank is reserved, and why (step 3)."""
    setting, delay = "leave_delay", settings.leave_delay
    until = -math.inf if is_live else situation.gone_since.get(name, now) + delay
    if name in situation.emptied_since:
        if settings.handover_wait > delay:
            setting, delay = "handover_wait", settings.handover_wait
        until = max(until, situation.emptied_since[name] + delay)
    which = f"{name!r}, which {'leaves' if is_live else 'is gone'}"
    return until, f"the rank of {which}, is kept: {setting} of {delay:g} s"


def _turns(
    ranks: Sequence[str],
    dropped: set[str],
    leaving: Sequence[str],
    never_move: Collection[str],
    budget: _Stagger,
) -> set[str]:
    """Return the leaving members that give up their ranks now.

    There are at most as many as the budget allows. Each turn goes to the highest or to the lowest
    of them. The member that takes fewer other ranks with it is chosen or, if both take as many, the
    member whose leave moves fewer others. With up to six ranks, no other choice is better
    (`tests/core/test_ranks.py` tries all).
    """
    if budget.to_give_up >= len(leaving):
        return set(leaving)
    turns: set[str] = set()

    def cost(name: str) -> tuple[int, int]:
        closed = _with_movers_dropped(ranks, {*dropped, *turns, name}, never_move)
        after = _closed_up(ranks, closed)
        return len(closed), sum(1 for old, new in zip(ranks, after, strict=False) if old != new)

    while budget.to_give_up:
        budget.to_give_up -= 1
        serving = [name for name in leaving if name not in turns]
        turns.add(min(serving[0], serving[-1], key=cost))
    return turns


def _with_movers_dropped(
    ranks: Sequence[str], dropped: set[str], never_move: Collection[str]
) -> set[str]:
    """Return the dropped members, and others that have to go with them.

    `never_move` has the members that are gone, leave, or offer their ranks. In another rank, they
    would serve for a moment or not at all. So they are dropped if they are above the new size. Each
    such drop makes the new size smaller, so the loop repeats until none of them is above it.
    """
    closed = set(dropped)
    while movers := [
        name
        for name in ranks[len(ranks) - len(closed) :]
        if name not in closed and name in never_move
    ]:
        closed.update(movers)
    return closed


def _closed_up(ranks: Sequence[str], dropped: set[str]) -> list[str]:
    """Return the ranks without the dropped members.

    The members above the new size move into the holes. There are as many of them as holes, because
    the new size is the old one minus the number of dropped members.
    """
    size = len(ranks) - len(dropped)
    movers = iter([name for name in ranks[size:] if name not in dropped])
    return [next(movers) if name in dropped else name for name in ranks[:size]]


def _why_dropped(name: str, member: Candidate | None) -> str:
    if member is None:
        return f"expired {name}"
    return f"left {name}" if member.phase is Phase.LEAVING else f"cannot follow {name}"


def _grow(
    ranks: list[str],
    waiting: Sequence[Candidate],
    situation: Situation,
    starting: bool,
    now: float,
    settings: RankSettings,
    budget: _Stagger,
    because: list[str],
) -> dict[str, Upcoming]:
    """Append the members that have waited long enough, in place (step 5).

    Return the delays that the other members wait for.
    """
    due = {m.name: _due(m, situation, starting, settings, now) for m in waiting}
    if any(at <= now for at, _ in due.values()):
        for member in waiting:
            batched = due[member.name][0] <= now + member.rebalance_delay / 10
            if batched and budget.to_add:
                budget.to_add -= 1
                ranks.append(member.name)
                because.append(f"joined {member.name}")
    ranked = set(ranks)
    return {
        name: Upcoming(at, f"member {name!r} waits for {delay}")
        for name, (at, delay) in due.items()
        if name not in ranked and at > now
    }


def _due(
    member: Candidate, situation: Situation, starting: bool, settings: RankSettings, now: float
) -> tuple[float, str]:
    """Return when a waiting member may be appended, and the delay until then."""
    if starting:
        return now, ""
    at, setting, delay = growth_due(
        member.first_seen, member.rebalance_delay, situation.started_at, settings
    )
    whose = "its" if setting == "rebalance_delay" else "the"
    return at, f"{whose} {setting} of {delay:g} s"


def growth_due(
    first_seen: float, rebalance_delay: float, started_at: float | None, settings: RankSettings
) -> tuple[float, str, float]:
    """Return when a group grows for a member, by which setting, and its value.

    The member's record was first seen at `first_seen` and has the `rebalance_delay`. The group last
    started from empty at `started_at`, if that was seen. The settings are the coordinator's.
    """
    is_early = started_at is not None and first_seen < started_at + settings.rebalance_delay
    if is_early and settings.initial_delay < rebalance_delay:
        return first_seen + settings.initial_delay, "initial_delay", settings.initial_delay
    return first_seen + rebalance_delay, "rebalance_delay", rebalance_delay
