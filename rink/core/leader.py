"""What the leader does: rank the members, and proclaim the next version (R4, R9).

Every member keeps the `Chronicle`, since every member watches: when it first saw each record, and
when it first missed each ranked member. So a new leader knows the delays, and nobody's wall clock
is compared with another's. Deliberately absent: an election. The oldest record leads, and the
proclaiming transaction asks whether it is still there.
"""

from __future__ import annotations

import attrs

from rink.core import codec, ranks
from rink.core.backoff import backoff
from rink.core.effects import Effect, Level, Proclaim, Prune, Report
from rink.core.events import ProclaimAnswered
from rink.core.ranks import Candidate, Plan, Settings, Situation
from rink.core.values import Member, Phase, Proclaimed, Record, Request, Share, Version, Wish
from rink.core.view import View

VERSION_LIMIT_BYTES = 1_000_000
"""How large a version may be; etcd refuses a request above 1.5 MB."""

KEPT_VERSIONS = 100
KEPT_BYTES = 1_000_000
PRUNED_AT_ONCE = 10
"""Versions are pruned in tens, so that pruning is not one more write per version."""


@attrs.define
class Chronicle:
    """When this member first saw what it sees; readings of its own monotonic clock."""

    first_seen: dict[tuple[str, int], float] = attrs.field(factory=dict)
    gone_since: dict[str, float] = attrs.field(factory=dict)
    started_at: float | None = None
    _last_number: int | None = None

    def note(self, view: View, now: float) -> None:
        """Take in a view; times of what is no longer there are forgotten."""
        seen = {(member.name, member.create_revision) for member in view.by_age}
        for key in self.first_seen.keys() - seen:
            del self.first_seen[key]
        for key in seen - self.first_seen.keys():
            self.first_seen[key] = now
        live = {name for name, _ in seen}
        ranked = set(view.version.ranks) if view.version else set()
        for name in self.gone_since.keys() - (ranked - live):
            del self.gone_since[name]
        for name in (ranked - live) - self.gone_since.keys():
            self.gone_since[name] = now
        self._note_start(view, now)

    def _note_start(self, view: View, now: float) -> None:
        last, self._last_number = self._last_number, view.newest.number if view.newest else 0
        if last is None:
            return  # what a first list brings was proclaimed at a time nobody here knows
        for number in range(last + 1, self._last_number + 1):
            proclaimed = view.versions.get(number)
            if proclaimed and proclaimed.version and ranks.STARTED in proclaimed.version.because:
                self.started_at = now


def is_settled(view: View, owned: dict[str, Share]) -> bool:
    """Whether every live record's one share is that of the newest version, and nothing drains."""
    for member in view.by_age:
        if member.record is None or member.record.draining:
            return False
        share = owned.get(member.name)
        if member.record.shares != (() if share is None else (share,)):
            return False
    return True


@attrs.define
class Leader:
    """The leader's own state: what it has under way."""

    settings: Settings
    proclaiming: int = 0
    failures: int = 0
    retry_at: float = float("-inf")
    refused_at: int = 0
    pruned_below: int = 0
    too_large: int = 0

    def lead(
        self, me: Member, view: View, chronicle: Chronicle, settled: bool, now: float
    ) -> tuple[list[Effect], float | None]:
        """Return what to proclaim and prune now, and when to look again."""
        if view.newest is not None and view.newest.version is None:
            return [], None  # a later Rink's version: hold what is held, decide nothing
        if self.proclaiming:
            if view.newest is None or view.newest.number < self.proclaiming:
                return [], None
            self.proclaiming = 0
        if now < self.retry_at:
            return [], self.retry_at
        if view.revision <= self.refused_at:
            return [], None  # refused at a revision that this view has not reached
        plan, version, requests = _next(me, view, chronicle, settled, now, self.settings)
        if version is None:
            return self._prune(view), plan.wake_at
        return self._proclaim(version, me, requests), plan.wake_at

    def _proclaim(self, version: Version, me: Member, requests: tuple[str, ...]) -> list[Effect]:
        size = len(codec.encode(version))
        if size > VERSION_LIMIT_BYTES:
            if self.too_large == version.number:
                return []
            self.too_large = version.number
            text = (
                f"version {version.number} would take {size} bytes for {len(version.ranks)} ranks "
                f"and {len(version.pins)} pins; the limit is {VERSION_LIMIT_BYTES}, so it is not "
                "proclaimed: use shorter member names, fewer pins, or several groups"
            )
            return [Report(Level.ERROR, text)]
        self.proclaiming = version.number
        return [Proclaim(version, me.create_revision, requests)]

    def _prune(self, view: View) -> list[Effect]:
        kept = _kept(sorted(view.versions.values(), key=lambda entry: -entry.number))
        excess = len(view.versions) - kept
        if kept < KEPT_VERSIONS:
            excess *= PRUNED_AT_ONCE  # over the bytes: at once
        below = sorted(view.versions)[-kept] if kept else 0
        if excess < PRUNED_AT_ONCE or below <= self.pruned_below:
            return []
        self.pruned_below = below
        return [Prune(below)]

    def answered(self, event: ProclaimAnswered, view: View) -> None:
        """Take the answer to a proclamation."""
        if event.number != self.proclaiming:
            return
        self.failures = 0
        if not event.applied:
            # Somebody else's came first, or the own record is gone: the view is about to show it.
            self.proclaiming, self.refused_at = 0, view.revision

    def failed(self, number: int, now: float, who: str) -> None:
        """Note that a proclamation was not answered; the same number is tried again."""
        if number == self.proclaiming:
            self.failures += 1
            self.proclaiming, self.retry_at = 0, now + backoff(self.failures, who)


def _kept(newest_first: list[Proclaimed]) -> int:
    """How many versions to keep: 100, fewer above 1 MB together, never fewer than two."""
    total = 0
    for kept, entry in enumerate(newest_first):
        total += entry.bytes
        if kept >= KEPT_VERSIONS or (kept >= 2 and total > KEPT_BYTES):
            return kept
    return len(newest_first)


def _next(
    me: Member,
    view: View,
    chronicle: Chronicle,
    settled: bool,
    now: float,
    settings: Settings,
) -> tuple[Plan, Version | None, tuple[str, ...]]:
    """Return the plan, and the next version where one is needed, with the requests it answers."""
    current = view.version
    scheme = _scheme(view, current)
    plan = ranks.plan(_situation(view, chronicle, scheme, settled), now, settings)
    if current is not None and scheme != current.scheme:
        # One more version, with the ranks as they are; what the new scheme asks of them comes next.
        plan = Plan(current.ranks, (f"scheme {current.scheme} -> {scheme}",))
    pins, token_base, granted, answered = _grant_requests(view, current)
    because = plan.because + granted
    if not because and not answered:
        return plan, None, ()
    version = Version(
        number=view.newest.number + 1 if view.newest else 1,
        ranks=plan.ranks,
        scheme=scheme,
        pins=pins,
        token_base=token_base,
        because=because,
        by=me.name,
    )
    return plan, version, answered


def _situation(view: View, chronicle: Chronicle, scheme: str, settled: bool) -> Situation:
    return Situation(
        ranks=view.version.ranks if view.version else (),
        members=[
            Candidate(
                name=member.name,
                create_revision=member.create_revision,
                first_seen=chronicle.first_seen[member.name, member.create_revision],
                rebalance_delay=member.record.rebalance_delay if member.record else 0.0,
                leaving=member.record is not None and member.record.phase is Phase.LEAVING,
                can_follow=member.record is not None and scheme in member.record.schemes,
            )
            for member in view.by_age
        ],
        proclaimed_at=view.newest.mod_revision if view.newest else 0,
        gone_since=chronicle.gone_since,
        started_at=chronicle.started_at,
        settled=settled,
    )


def _scheme(view: View, current: Version | None) -> str:
    """Return the scheme of the next version.

    It changes only when every ranked, active member lists the same other one first, or, where no
    active member can follow it, to the oldest active record's first: one old pod in a crash loop
    drags nobody back, and nobody is stuck.
    """
    active = {
        member.name: member.record
        for member in view.by_age
        if member.record is not None and member.record.phase is Phase.ACTIVE
    }
    firsts = [record.schemes[0] for record in active.values() if record.schemes]
    if current is None or not any(current.scheme in record.schemes for record in active.values()):
        return firsts[0] if firsts else current.scheme if current else "jump"
    wanted = {_first(active[name]) for name in current.ranks if name in active}
    return wanted.pop() if len(wanted) == 1 else current.scheme


def _first(record: Record) -> str:
    return record.schemes[0] if record.schemes else ""


def _grant_requests(
    view: View, current: Version | None
) -> tuple[dict[str, str], int, tuple[str, ...], tuple[str, ...]]:
    """Return pins and token base as operators wish them, the causes, and the requests answered."""
    pins = dict(current.pins) if current else {}
    token_base = current.token_base if current else 0
    because: list[str] = []
    answered: list[str] = []
    if current is None or not current.ranks:
        return pins, token_base, (), ()
    for asked in sorted(view.requests.values(), key=lambda asked: (asked.mod_revision, asked.id)):
        if asked.request is None:
            continue
        answered.append(asked.id)
        token_base, cause = _grant_request(asked.request, pins, token_base)
        because.append(cause)
    return pins, token_base, tuple(because), tuple(answered)


def _grant_request(request: Request, pins: dict[str, str], token_base: int) -> tuple[int, str]:
    if request.wish is Wish.PIN and request.role and request.member:
        pins[request.role] = request.member
        return token_base, f"pinned {request.role} to {request.member}"
    if request.wish is Wish.UNPIN and pins.pop(request.role, None) is not None:
        return token_base, f"unpinned {request.role}"
    if request.wish is Wish.TOKEN_BASE and request.token_base > token_base:
        return request.token_base, f"token base {token_base} -> {request.token_base}"
    return token_base, f"request {request.wish.value} changed nothing"
