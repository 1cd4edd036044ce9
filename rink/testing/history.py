"""Judge whether the history of a group keeps Rink's promises.

Put processes under load, break something, and have each member report when it gained a role and
when its work under the role stopped. `judge` finds what Rink forbids, and counts the rest:

    history = History()
    history.add(HistoryEvent("gained", "one", at=1.0, role="leader", token=7))
    ...
    judgement = history.judge()
    assert judgement.problems == []
    assert judgement.longest_gap() < 5.0

All times must come from one clock, and so from one machine. Use a clock that counts suspended time
(`CLOCK_BOOTTIME`). A member holds a role from `gained` to `let go`. Report `gained` once you have
the handle. Report `let go` when the work has stopped, before you release the handle.
"""

from __future__ import annotations

import enum
import heapq
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import attrs


class What(enum.StrEnum):
    """Name the kinds of events."""

    GAINED = "gained"
    LET_GO = "let go"
    ENDED = "ended"
    """The member's process is dead: it holds nothing any more."""
    FROZEN = "frozen"
    """The member's process does not run: no work is done under its roles."""
    THAWED = "thawed"
    """The process runs again, and keeps the roles that no other member has gained meanwhile."""
    LEASE_ENDED = "lease ended"
    """etcd ended the member's lease; `token` is the revision that deleted its record."""
    ACCEPTED = "accepted"
    """A resource accepted the member's write."""
    REFUSED = "refused"
    """A resource refused the member's write because of its token."""


_WRITES = {What.ACCEPTED, What.REFUSED}
_OBSERVED = {What.ENDED, What.FROZEN, What.THAWED}
# The order of events with the same time. So a hand-over without a gap is no overlap.
_AT_ONCE = {What.GAINED: 1, What.THAWED: 2}


@attrs.frozen
class HistoryEvent:
    """Describe one event of a history.

    Attributes:
        what: the kind of event.
        who: the member.
        at: the time, in seconds.
        role: the role, if the event is about one.
        token: the fencing token of the grant; for `lease ended`, the revision.
        until: the member's own deadline at that time; None if the event does not report it.
    """

    what: What = attrs.field(converter=What)
    who: str
    at: float
    role: str = ""
    token: int = 0
    until: float | None = None


@attrs.frozen
class Overlap:
    """Report two holders of a role at once; without `end`, they still hold it."""

    role: str
    holder: str
    taker: str
    begin: float
    end: float | None = None

    def __str__(self) -> str:
        end = "the end" if self.end is None else f"{self.end - self.begin:.3f} s later"
        return f"{self.taker} gained {self.role} while {self.holder} held it, until {end}"


@attrs.frozen
class Gap:
    """Report that no member held a role; if `is_open`, not even at the end."""

    role: str
    begin: float
    end: float
    is_open: bool = False

    @property
    def seconds(self) -> float:
        """Return the length of the gap."""
        return self.end - self.begin


@attrs.frozen(kw_only=True)
class Judgement:
    """Hold the result of `judge`.

    Attributes:
        overlaps: times when two members held a role at once, without the overlaps in `early`.
        early: overlaps after etcd had ended the lease of a holder before the holder's own deadline.
            No client can prevent them. Only the token guards against them.
        tokens: grants whose token was not greater than the token of an earlier holder.
        stale: writes that were wrongly accepted, after a write under a later grant.
        disorder: reports that contradict each other.
        accepted: the number of accepted writes.
        refused: the number of refused writes.
        grants: every `gained`, in order.
        gaps: times when no member held a role that had been held before, ordered by their begin.
        holders: the last holder of each role that is held at the end.
    """

    overlaps: tuple[Overlap, ...]
    early: tuple[Overlap, ...]
    tokens: tuple[str, ...]
    stale: tuple[str, ...]
    disorder: tuple[str, ...]
    accepted: int
    refused: int
    grants: tuple[HistoryEvent, ...]
    gaps: tuple[Gap, ...]
    holders: dict[str, str]

    @property
    def problems(self) -> list[str]:
        """Return a sentence for each broken promise, without `early` and gaps."""
        return [*map(str, self.overlaps), *self.tokens, *self.stale, *self.disorder]

    def gains(self, since: float = 0.0) -> dict[str, int]:
        """Return the number of grants of each role after `since`."""
        return Counter(grant.role for grant in self.grants if grant.at > since)

    def moves(self, since: float = 0.0) -> dict[str, int]:
        """Return the number of moves of each role after `since`."""
        moves: Counter[str] = Counter()
        last: dict[str, str] = {}
        for grant in self.grants:
            if last.setdefault(grant.role, grant.who) != grant.who and grant.at > since:
                moves[grant.role] += 1
            last[grant.role] = grant.who
        return moves

    def longest_gap(self, since: float = 0.0) -> float:
        """Return the longest gap that ended after `since`, in seconds, or 0."""
        return max((gap.seconds for gap in self.gaps if gap.end > since), default=0.0)

    def not_held(self, roles: Iterable[str]) -> list[str]:
        """Return the roles that no member held in the end."""
        return [role for role in roles if role not in self.holders]


def judge(events: Iterable[HistoryEvent]) -> Judgement:
    """Judge a history.

    Args:
        events: the events, in any order with two exceptions. Give the events of one member in the
            order of its reports, and writes in the order in which the resource received them.
    """
    events = list(events)
    walk = _Walk(events)
    for event in in_order(events):
        walk.take(event)
    return walk.end()


def in_order(events: Iterable[HistoryEvent]) -> Iterator[HistoryEvent]:
    """Sort events by time, and keep the order of each member's own events."""
    streams: dict[object, list[HistoryEvent]] = {}
    for event in events:
        # Observations of a process and the process's own reports are two streams.
        source = None if event.what in _WRITES else (event.who, event.what in _OBSERVED)
        streams.setdefault(source, []).append(event)
    return heapq.merge(*streams.values(), key=lambda event: (event.at, _AT_ONCE.get(event.what, 0)))


class _Walk:
    """Walk over a history in order, and collect its problems."""

    def __init__(self, events: list[HistoryEvent]) -> None:
        self._lease_ends = [event for event in events if event.what is What.LEASE_ENDED]
        self._held: dict[str, dict[str, HistoryEvent]] = {}  # role -> holder -> its grant
        # role, holder -> grant of a frozen holder
        self._stopped: dict[tuple[str, str], HistoryEvent] = {}
        self._newest: dict[str, HistoryEvent] = {}
        self._until: dict[str, float] = {}
        self._overlaps: list[tuple[Overlap, bool]] = []
        self._free: dict[str, float] = {}
        self._gaps: list[Gap] = []
        self._grants: list[HistoryEvent] = []
        self._order: dict[tuple[str, str, int], int] = {}  # role, holder, token -> its index
        self._written: dict[str, tuple[int, HistoryEvent]] = {}
        self._tokens: list[str] = []
        self._stale: list[str] = []
        self._disorder: list[str] = []
        self._counts: Counter[What] = Counter()
        self._now = 0.0

    def take(self, event: HistoryEvent) -> None:
        self._now = event.at
        self._counts[event.what] += 1
        match event.what:
            case What.GAINED:
                self._gained(event)
            case What.LET_GO:
                self._let_go(event)
            case What.ENDED | What.FROZEN:
                self._stop(event)
            case What.THAWED:
                self._thawed(event)
            case What.ACCEPTED | What.REFUSED:
                self._wrote(event)
            case What.LEASE_ENDED:
                pass
        if event.until is not None:
            self._until[event.who] = event.until

    def _gained(self, event: HistoryEvent) -> None:
        role, who, last = event.role, event.who, self._newest.get(event.role)
        holders = self._held.setdefault(role, {})
        for other, grant in holders.items():
            if other == who:
                self._disorder.append(f"{who} gained {role} twice")
            else:
                overlap = Overlap(role, other, who, event.at)
                self._overlaps.append((overlap, self._is_early(grant, event)))
        if last and (event.token < last.token or (event.token == last.token and who != last.who)):
            self._tokens.append(
                f"{who} has token {event.token} of {role}, after {last.who} had {last.token}"
            )
        self._newest[role] = event
        self._order[role, who, event.token] = len(self._grants)
        self._grants.append(event)
        self._hold(event, event.at)

    def _is_early(self, grant: HistoryEvent, taker: HistoryEvent) -> bool:
        """Return whether etcd ended the holder's lease early."""
        return self._until.get(grant.who, 0.0) > taker.at and any(
            end.who == grant.who and grant.token < end.token <= taker.token
            for end in self._lease_ends
        )

    def _hold(self, grant: HistoryEvent, at: float) -> None:
        self._held.setdefault(grant.role, {})[grant.who] = grant
        if grant.role in self._free:
            self._gaps.append(Gap(grant.role, self._free.pop(grant.role), at))

    def _unhold(self, grant: HistoryEvent, at: float) -> None:
        holders = self._held[grant.role]
        del holders[grant.who]
        if not holders:
            self._free[grant.role] = at
        for index, (overlap, early) in enumerate(self._overlaps):
            between = (overlap.holder, overlap.taker)
            if overlap.end is None and overlap.role == grant.role and grant.who in between:
                self._overlaps[index] = attrs.evolve(overlap, end=at), early

    def _let_go(self, event: HistoryEvent) -> None:
        grant = self._held.get(event.role, {}).get(event.who)
        stopped = self._stopped.get((event.role, event.who))
        if grant and grant.token == event.token:
            self._unhold(grant, event.at)
        elif stopped and stopped.token == event.token:
            del self._stopped[event.role, event.who]  # the freeze had ended the hold already
        else:
            self._disorder.append(
                f"{event.who} let go of {event.role} ({event.token}), which it did not hold"
            )

    def _stop(self, event: HistoryEvent) -> None:
        who = event.who
        for grant in [holders[who] for holders in self._held.values() if who in holders]:
            self._unhold(grant, event.at)
            self._stopped[grant.role, who] = grant
        if event.what is What.ENDED:
            self._stopped = {key: grant for key, grant in self._stopped.items() if key[1] != who}

    def _thawed(self, event: HistoryEvent) -> None:
        for key, grant in list(self._stopped.items()):
            if key[1] == event.who and self._newest[grant.role] is grant:
                del self._stopped[key]
                self._hold(grant, event.at)

    def _wrote(self, event: HistoryEvent) -> None:
        grant = self._order.get((event.role, event.who, event.token))
        write = f"{event.who} wrote {event.role} with token {event.token}"
        if grant is None:
            self._disorder.append(f"{write}, which it was not granted")
            return
        before = self._written.get(event.role)
        is_stale = before is not None and grant < before[0]
        if event.what is What.REFUSED:
            if not is_stale:
                self._disorder.append(f"{write}, and was refused though nobody later had written")
        elif is_stale and before is not None:
            self._stale.append(f"{write} after {before[1].who} had with {before[1].token}")
        else:
            self._written[event.role] = grant, event

    def end(self) -> Judgement:
        gaps = [*self._gaps, *(Gap(role, at, self._now, True) for role, at in self._free.items())]
        return Judgement(
            overlaps=tuple(overlap for overlap, early in self._overlaps if not early),
            early=tuple(overlap for overlap, early in self._overlaps if early),
            tokens=tuple(self._tokens),
            stale=tuple(self._stale),
            disorder=tuple(self._disorder),
            accepted=self._counts[What.ACCEPTED],
            refused=self._counts[What.REFUSED],
            grants=tuple(self._grants),
            gaps=tuple(sorted(gaps, key=lambda gap: gap.begin)),
            holders={role: list(who)[-1] for role, who in self._held.items() if who},
        )


class History:
    """Collect events while they happen, from any thread."""

    def __init__(self, events: Iterable[HistoryEvent] = ()) -> None:
        self._changed = threading.Condition()
        self._events: list[HistoryEvent] = []
        self._writes: list[HistoryEvent] = []  # kept apart: they are many, and change no holder
        for event in events:
            self.add(event)

    def add(self, event: HistoryEvent) -> None:
        """Add one event."""
        if event.what in _WRITES:
            self._writes.append(event)
            return
        with self._changed:
            self._events.append(event)
            self._changed.notify_all()

    @property
    def events(self) -> list[HistoryEvent]:
        """Return all events except writes, by time."""
        with self._changed:
            events = list(self._events)
        return list(in_order(events))

    @property
    def holders(self) -> dict[str, str]:
        """Return the current holder of each held role."""
        with self._changed:
            events = list(self._events)
        return judge(events).holders

    def judge(self) -> Judgement:
        """Judge the events so far."""
        with self._changed:
            return judge([*self._events, *self._writes])

    def wait(self, happens: Callable[[History], bool], timeout: float = 30.0) -> None:
        """Wait until a condition of the history is true.

        Args:
            happens: the condition, called with the history, and again after each change.
            timeout: seconds.

        Raises:
            TimeoutError: the condition did not come true; shows the last events.
        """
        end = time.monotonic() + timeout
        while True:
            known = len(self._events)
            begin = time.monotonic()
            if happens(self):
                return
            # `happens` may take long on a long history. It runs at most a quarter of the time.
            pause = 3 * (time.monotonic() - begin)
            if not self._wait_for_more(known, pause, end):
                raise TimeoutError(
                    f"the condition did not come true within {timeout:g} s; last events: "
                    f"{self.events[-10:]}"
                )

    def _wait_for_more(self, known: int, pause: float, end: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: False, pause)
            left = max(0.0, end - time.monotonic())
            return self._changed.wait_for(lambda: len(self._events) > known, left)
