"""The next version: what the newest one, the live records and operators' wishes ask for.

A pure function of the view and of what the leader remembers. Deliberately absent: whether it may be
proclaimed now; that is `rink.core.leader`.
"""

from __future__ import annotations

import json

import attrs

from rink.core import ranks
from rink.core.chronicle import Chronicle
from rink.core.ranks import Candidate, Plan, Settings, Situation, Upcoming
from rink.core.values import Phase, Request, Version, Wish
from rink.core.view import View

VERSION_LIMIT_BYTES = 1_000_000
"""How large a version may be; etcd refuses a request above 1.5 MB."""

BECAUSE_LIMIT_BYTES = 50_000
FIELDS_LIMIT_BYTES = 30_000
"""What a version takes beside ranks, pins and causes: two names, a time, punctuation."""

WISHES_AT_ONCE = 100
"""How many requests one version answers: each is deleted with it, and etcd refuses a transaction of
more than 128 operations."""


@attrs.frozen
class Draft:
    """The next version (None: the newest one stands), and what comes after it if nothing happens."""

    version: Version | None
    requests: tuple[str, ...] = ()
    upcoming: Upcoming | None = None


def draft(
    by: str,
    view: View,
    chronicle: Chronicle,
    settled: bool,
    now: float,
    settings: Settings,
    left_out: frozenset[str] = frozenset(),
) -> Draft:
    """Draft the next version, as if whoever is `left_out` was not there."""
    current = view.version
    scheme = _scheme(view, current)
    plan = ranks.plan(_situation(view, chronicle, scheme, settled, left_out), now, settings)
    if current is not None and scheme != current.scheme:
        # One more version, with the ranks as they are; what the new scheme asks of them comes next.
        plan = Plan(current.ranks, (f"scheme {current.scheme} -> {scheme}",))
    room = VERSION_LIMIT_BYTES - BECAUSE_LIMIT_BYTES - FIELDS_LIMIT_BYTES - _bytes_of(plan.ranks)
    wishes = _Wishes(dict(current.pins) if current else {}, chronicle.token_base, room)
    if current is not None and current.ranks:
        wishes.grant(view)
    because = (*plan.because, *wishes.because)
    if not because:
        return Draft(None, (), plan.upcoming)
    version = Version(
        number=view.newest.number + 1 if view.newest else 1,
        ranks=plan.ranks,
        scheme=scheme,
        pins=wishes.pins,
        token_base=wishes.token_base,
        because=_shortened(because),
        by=by,
    )
    return Draft(version, tuple(wishes.answered), plan.upcoming)


def without_room(view: View) -> frozenset[str]:
    """Return who waits and cannot be ranked, as the version would grow too large (R4).

    It follows from the view alone, so that each of them can say so itself. A rank whose member is
    gone makes room; one whose member leaves may have to be served on for a while (`stagger`).
    """
    live = {member.name for member in view.by_age}
    ranked = set(view.version.ranks) if view.version else set()
    room = VERSION_LIMIT_BYTES - BECAUSE_LIMIT_BYTES - FIELDS_LIMIT_BYTES
    room -= view.newest.bytes if view.newest else 0
    room += sum(_bytes_of(name) for name in ranked if name not in live)
    found = set()
    for member in view.by_age:
        if member.record is None or member.name in ranked:
            continue
        takes = _bytes_of(member.name) + len(",")
        if takes > room:
            found.add(member.name)
        else:
            room -= takes
    return frozenset(found)


def no_room() -> str:
    """Say why whoever is without room is not ranked, and what helps."""
    return (
        f"it has no room for its name within the limit of {VERSION_LIMIT_BYTES} bytes: use shorter "
        "member names, fewer pins, or several groups"
    )


def _shortened(because: tuple[str, ...]) -> tuple[str, ...]:
    """Leave out the causes that would make a version of many members twice as large."""
    total = 0
    for index, cause in enumerate(because):
        total += len(cause.encode())
        if total > BECAUSE_LIMIT_BYTES:
            return (*because[:index], f"and {len(because) - index} more")
    return because


def _situation(
    view: View, chronicle: Chronicle, scheme: str, settled: bool, left_out: frozenset[str]
) -> Situation:
    today = view.version.ranks if view.version else ()
    return Situation(
        ranks=today,
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
            if member.name not in left_out
        ],
        was_empty=chronicle.was_empty,
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
    wanted = {active[name].schemes[:1] for name in current.ranks if name in active}
    first = wanted.pop() if len(wanted) == 1 else ()
    return first[0] if first else current.scheme


@attrs.define
class _Wishes:
    """Pins and token base as operators wish them; each wish is answered, if only by a refusal.

    `room` is how many bytes pins may take: a wish for more must not keep ranks from changing.
    """

    pins: dict[str, str]
    token_base: int
    room: int
    because: list[str] = attrs.field(factory=list)
    answered: list[str] = attrs.field(factory=list)

    def grant(self, view: View) -> None:
        """Carry out the requests that can be read, oldest first; what is left comes next."""
        oldest = sorted(view.requests.values(), key=lambda asked: (asked.mod_revision, asked.id))
        wishes = [(asked.id, asked.request) for asked in oldest if asked.request is not None]
        for request_id, request in wishes[:WISHES_AT_ONCE]:
            self.answered.append(request_id)
            self.because.append(self._grant(request))

    def _grant(self, request: Request) -> str:
        if request.wish is Wish.PIN and request.role and request.member:
            if _bytes_of({**self.pins, request.role: request.member}) > self.room:
                return f"refused to pin {request.role}: the version would be too large"
            self.pins[request.role] = request.member
            return f"pinned {request.role} to {request.member}"
        if request.wish is Wish.UNPIN and self.pins.pop(request.role, None) is not None:
            return f"unpinned {request.role}"
        if request.wish is Wish.TOKEN_BASE and request.token_base > self.token_base:
            before, self.token_base = self.token_base, request.token_base
            return f"token base {before} -> {request.token_base}"
        return f"request {request.wish.value} changed nothing"


def _bytes_of(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode())
