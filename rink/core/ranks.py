"""Ranking: from today's ranks and the live records to the next ranks. A pure function.

The steps, in this order (DESIGN section 4):

1. A ranked member that is live, active and can follow the scheme keeps its rank.
2. The rank of a missing one (gone, leaving, or unable to follow) goes at once to the member that
   has waited longest, lowest rank first.
3. With nobody waiting, a gone member's rank stays reserved for `leave_delay`, for the same name or
   for any newcomer. A leaving one's is not reserved.
4. After that the group shrinks: the ranks above the new size move into the holes.
5. A waiting member whose delay is over is appended, with all whose delay ends within a tenth of it.

An empty group ranks everyone at once. `stagger` bounds how many ranks one version may add, and how
many it may take from members that leave by plan; ranks of dead members are never kept back by it.

Waiting order is the record's create revision. Nothing here depends on the order of a dict, and no
clock but the caller's is looked at: all times are readings of that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs


@attrs.frozen
class Candidate:
    """A live record, as ranking sees it. Times are readings of the planner's monotonic clock."""

    name: str
    create_revision: int
    first_seen: float
    rebalance_delay: float = 60.0
    leaving: bool = False
    can_follow: bool = True

    @property
    def is_usable(self) -> bool:
        """Return whether the member may be given a rank."""
        return self.can_follow and not self.leaving


@attrs.frozen
class Settings:
    """The coordinator's settings for ranking, in seconds; `stagger` in ranks per version."""

    rebalance_delay: float = 60.0
    initial_delay: float = 2.0
    leave_delay: float = 0.0
    stagger: int | None = None


@attrs.frozen
class Situation:
    """What a plan starts from.

    `gone_since` says when each missing member of `ranks` was first noticed gone. `started_at` is
    when the planner first saw the group start from empty, None for never; `was_empty` says that
    no version has been proclaimed since it was: members came back to ranks that waited for them.
    """

    ranks: tuple[str, ...]
    members: Sequence[Candidate]
    gone_since: Mapping[str, float] = attrs.field(factory=dict)
    started_at: float | None = None
    was_empty: bool = False
    settled: bool = True


@attrs.frozen
class Upcoming:
    """The next change of the ranks if nothing happens before, and who waits for what until then.

    `at` is None where it comes with no time, but when the last version has settled.
    """

    at: float | None
    because: str


@attrs.frozen
class Plan:
    """The next ranks, why, and what comes after them if nothing happens (None: nothing)."""

    ranks: tuple[str, ...]
    because: tuple[str, ...] = ()
    upcoming: Upcoming | None = None

    @property
    def wake_at(self) -> float | None:
        """Return when to plan again if nothing happens before; None: never."""
        return self.upcoming.at if self.upcoming else None


STARTED = "started"
"""The cause that marks a version which starts a group from empty."""


def plan(situation: Situation, now: float, settings: Settings) -> Plan:
    """Return the next ranks.

    They equal today's, and have no causes, where nothing is to be done.
    """
    live = {member.name: member for member in situation.members}
    ranked = set(situation.ranks)
    waiting = sorted(
        (m for m in situation.members if m.is_usable and m.name not in ranked),
        key=lambda member: (member.create_revision, member.name),
    )
    starting = not any(name in live for name in situation.ranks)
    if not any(member.is_usable for member in situation.members):
        return Plan(situation.ranks)  # whoever leaves last serves until it has gone
    because: list[str] = []
    budget = _Stagger(settings.stagger, situation.settled)
    ranks, held_back = _replace(situation.ranks, live, waiting, budget, because)
    ranks, reserved = _shrink(ranks, situation, held_back, live, now, settings, because)
    ranked = set(ranks)
    waiting = [member for member in waiting if member.name not in ranked]
    delayed = _grow(ranks, waiting, situation, starting, now, settings, budget, because)
    if because and (starting or situation.was_empty):
        because.insert(0, STARTED)
    placed = {*ranks, *delayed}
    turns = [f"{name!r}, which leaves," for name in ranks if name in held_back]
    turns += [f"member {member.name!r}" for member in waiting if member.name not in placed]
    # Whoever's delay ends before the last version has settled waits for its turn then as well.
    upcoming = _first(reserved if turns else [*reserved, *delayed.values()], turns, settings)
    return Plan(tuple(ranks), tuple(because), upcoming)


def _first(delays: Sequence[Upcoming], turns: Sequence[str], settings: Settings) -> Upcoming | None:
    """Return the change that comes first.

    A turn that is waited for comes at no known time.
    """
    first = min(delays, key=lambda one: one.at or 0.0, default=None)
    if first is None and turns:
        text = f"{turns[0]} waits until the last version has settled: stagger of {settings.stagger}"
        return Upcoming(None, text)
    return first


class _Stagger:
    """How many planned moves this version still allows, of either kind."""

    def __init__(self, limit: int | None, settled: bool) -> None:
        allowed = float("inf") if limit is None else limit if settled else 0
        self.to_add = self.to_give_up = allowed

    @property
    def may_add(self) -> bool:
        return self.to_add > 0

    @property
    def may_give_up(self) -> bool:
        return self.to_give_up > 0


def _replace(
    today: tuple[str, ...],
    live: Mapping[str, Candidate],
    waiting: Sequence[Candidate],
    budget: _Stagger,
    because: list[str],
) -> tuple[list[str], set[str]]:
    """Give missing ranks to members that wait (steps 1 and 2).

    Also return who must go on serving for a while.
    """
    ranks = list(today)
    queue = list(waiting)
    held_back: set[str] = set()
    for rank, name in enumerate(today):
        member = live.get(name)
        if member is not None and member.is_usable:
            continue
        if member is not None and member.leaving:
            if not budget.may_give_up:
                held_back.add(name)
                continue
            budget.to_give_up -= 1
        if queue:
            ranks[rank] = queue.pop(0).name
            because.append(f"replaced {name} by {ranks[rank]}: {_why_missing(member)}")
    return ranks, held_back


def _why_missing(member: Candidate | None) -> str:
    if member is None:
        return "gone"
    return "leaving" if member.leaving else "cannot follow the scheme"


def _shrink(
    ranks: list[str],
    situation: Situation,
    held_back: set[str],
    live: Mapping[str, Candidate],
    now: float,
    settings: Settings,
    because: list[str],
) -> tuple[list[str], list[Upcoming]]:
    """Drop the ranks that nobody took and nothing reserves (steps 3 and 4).

    Also return until when the others are reserved.
    """
    reserved: list[Upcoming] = []
    dropped: set[str] = set()
    for name in ranks:
        member = live.get(name)
        if name in held_back or (member is not None and member.is_usable):
            continue
        if member is None:
            until = situation.gone_since.get(name, now) + settings.leave_delay
            if now < until:
                delay = f"leave_delay of {settings.leave_delay:g} s"
                text = f"the rank of {name!r}, which is gone, is kept: {delay}"
                reserved.append(Upcoming(until, text))
                continue
            because.append(f"expired {name}")
        else:
            because.append(f"left {name}" if member.leaving else f"cannot follow {name}")
        dropped.add(name)
    size = len(ranks) - len(dropped)
    movers = iter([name for name in ranks[size:] if name not in dropped])
    kept = [next(movers) if name in dropped else name for name in ranks[:size]]
    return kept, reserved


def _grow(
    ranks: list[str],
    waiting: Sequence[Candidate],
    situation: Situation,
    starting: bool,
    now: float,
    settings: Settings,
    budget: _Stagger,
    because: list[str],
) -> dict[str, Upcoming]:
    """Append the members that have waited long enough (step 5), in place.

    Return what the other members wait for.
    """
    due = {m.name: _due(m, situation, starting, settings, now) for m in waiting}
    if any(at <= now for at, _ in due.values()):
        for member in waiting:
            batched = due[member.name][0] <= now + member.rebalance_delay / 10
            if batched and budget.may_add:
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
    member: Candidate, situation: Situation, starting: bool, settings: Settings, now: float
) -> tuple[float, str]:
    """Return when a waiting member may be appended.

    The second value is the delay that it waits for until then.
    """
    if starting:
        return now, ""
    delay, what = member.rebalance_delay, "its rebalance_delay"
    started_at = situation.started_at
    is_early = started_at is not None and member.first_seen < started_at + settings.rebalance_delay
    if is_early and settings.initial_delay < delay:
        delay, what = settings.initial_delay, "the initial_delay"
    return member.first_seen + delay, f"{what} of {delay:g} s"
