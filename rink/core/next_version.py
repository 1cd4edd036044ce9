"""Draft the next version from the newest one, the records and requests.

This is a pure function of the view and of the observed times. Deliberately absent: whether the
version may be proclaimed now. `rink.core.coordinator` decides that.
"""

from __future__ import annotations

import json

import attrs

from rink.core import ranks
from rink.core.codec import encode
from rink.core.member_record import Phase
from rink.core.observed_times import ObservedTimes
from rink.core.ranks import Candidate, RankPlan, RankSettings, Situation, Upcoming
from rink.core.schemes import follows
from rink.core.values import Member, Request, Version, Wish
from rink.core.view import View

VERSION_LIMIT_BYTES = 1_000_000
"""Largest size of a version; etcd refuses a request above 1.5 MB."""

BECAUSE_LIMIT_BYTES = 50_000
FIELDS_LIMIT_BYTES = 30_000
"""Room for the fields other than ranks, pins and causes: two names, a time, punctuation."""

NAMES_LIMIT_BYTES = 100_000
"""Room that pins leave to new members: no request may keep a member from its rank."""

MAX_REQUESTS_ANSWERED = 100
"""Largest number of requests that one version answers.

The proclaiming transaction deletes each of them, and etcd refuses more than 128 operations in one
transaction. If its `--max-txn-ops` is lower, the coordinator learns how many pass.
"""

_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@attrs.frozen
class Draft:
    """Hold the next version, or None, and the change of ranks after it."""

    version: Version | None
    requests: tuple[str, ...] = ()
    upcoming: Upcoming | None = None


def draft(
    by: str,
    view: View,
    observed_times: ObservedTimes,
    settled: bool,
    now: float,
    settings: RankSettings,
    left_out: frozenset[str] = frozenset(),
    requests_at_once: int = MAX_REQUESTS_ANSWERED,
) -> Draft:
    """Draft the next version, as if the members in `left_out` were not there.

    `left_out` assumes that the ranks of gone members make room, but `leave_delay` may keep them. If
    that makes the version too large, it is drafted once more without this assumption.
    """
    scheme = _scheme(view, view.version)

    def without(names: frozenset[str]) -> Draft:
        situation = _situation(view, observed_times, scheme, settled, names)
        plan = ranks.plan(situation, now, settings)
        return _draft(by, view, observed_times.token_base, scheme, plan, requests_at_once)

    drafted = without(left_out)
    if drafted.version is None or len(encode(drafted.version)) <= VERSION_LIMIT_BYTES:
        return drafted
    return without(left_out | without_room(view, freed=False))


def _draft(
    by: str, view: View, token_base: int, scheme: str, plan: RankPlan, requests_at_once: int
) -> Draft:
    current = view.version
    if current is not None and scheme != current.scheme:
        # This version keeps the ranks as they are. The next one changes them for the new scheme.
        plan = RankPlan(current.ranks, (f"scheme {current.scheme} -> {scheme}",))
    room = _for_ranks_and_pins() - _bytes_of(plan.ranks) - NAMES_LIMIT_BYTES
    answers = _RequestAnswers(dict(current.pins) if current else {}, token_base, room)
    if current is not None and current.ranks:
        answers.grant(view, requests_at_once)
    because = (*plan.because, *answers.because)
    if not because:
        return Draft(None, (), plan.upcoming)
    version = Version(
        number=view.newest.number + 1 if view.newest else 1,
        ranks=plan.ranks,
        scheme=scheme,
        pins=answers.pins,
        token_base=answers.token_base,
        because=_shortened(because),
        by=by,
    )
    return Draft(version, tuple(answers.answered), plan.upcoming)


def without_room(view: View, freed: bool = True) -> frozenset[str]:
    """Return the waiting members that a version has no room for (R4).

    The view alone decides this, so each of these members can report it itself. If `freed`, a rank
    whose member is gone makes room. A rank whose member leaves does not, since that member may have
    to serve for a while (`stagger`). A member that cannot be ranked anyway takes no room.
    """
    live = {member.name for member in view.by_age}
    ranks, pins = (view.version.ranks, view.version.pins) if view.version else ((), {})
    ranked = set(ranks)
    room = _for_ranks_and_pins() - _bytes_of(ranks) - _bytes_of(dict(pins))
    if freed:
        room += sum(_bytes_of_one(name) for name in ranks if name not in live)
    scheme = _scheme(view, view.version)
    without = set()
    for member in view.by_age:
        if member.name in ranked or not _is_usable(member, scheme):
            continue
        takes = _bytes_of_one(member.name)
        if takes > room:
            without.add(member.name)
        else:
            room -= takes
    return frozenset(without)


def unrankable(view: View) -> dict[str, str]:
    """Return the active members that can get no rank now, and why.

    The view alone decides this, so every process that reads the group gets the same answer.
    """
    if view.version is None:
        return {}
    scheme, ranked = _scheme(view, view.version), set(view.version.ranks)
    why = (
        f"it cannot follow the group's scheme {scheme!r}: register that in its process and name it "
        "in Rink(scheme=…), or have every ranked member list another scheme first"
    )
    strangers = [
        member.name
        for member in view.by_age
        if member.name not in ranked
        and member.record is not None
        and member.is_active
        and not follows(member.record.schemes, scheme)
    ]
    return {**dict.fromkeys(strangers, why), **dict.fromkeys(without_room(view), no_room())}


def why_unrankable(view: View, name: str) -> str:
    """Return why a member waits for a rank in vain, or an empty string."""
    if view.version is None or name in view.version.ranks:
        return ""  # the usual case needs no look at all members
    return unrankable(view).get(name, "")


def _is_usable(member: Member, scheme: str) -> bool:
    record = member.record
    return record is not None and member.is_active and follows(record.schemes, scheme)


def _for_ranks_and_pins() -> int:
    return VERSION_LIMIT_BYTES - BECAUSE_LIMIT_BYTES - FIELDS_LIMIT_BYTES


def no_room() -> str:
    """Return why a member without room is not ranked, and what to do."""
    return (
        f"it has no room for its name within the limit of {VERSION_LIMIT_BYTES} bytes: use shorter "
        "member names, fewer pins, or several groups"
    )


def _shortened(because: tuple[str, ...]) -> tuple[str, ...]:
    """Return the causes, cut to `BECAUSE_LIMIT_BYTES`."""
    total = 0
    for index, cause in enumerate(because):
        total += len(cause.encode())
        if total > BECAUSE_LIMIT_BYTES:
            return (*because[:index], f"and {len(because) - index} more")
    return because


def _situation(
    view: View, observed_times: ObservedTimes, scheme: str, settled: bool, left_out: frozenset[str]
) -> Situation:
    today = view.version.ranks if view.version else ()
    return Situation(
        ranks=today,
        members=[
            Candidate(
                name=member.name,
                create_revision=member.create_revision,
                first_seen=observed_times.first_seen[member.name, member.create_revision],
                rebalance_delay=member.record.rebalance_delay if member.record else 0.0,
                phase=member.record.phase if member.record else Phase.ACTIVE,
                can_follow=member.record is not None and follows(member.record.schemes, scheme),
            )
            for member in view.by_age
            if member.name not in left_out
        ],
        was_empty=observed_times.was_empty,
        gone_since=observed_times.gone_since,
        offering_since=observed_times.offering_since,
        emptied_since=observed_times.emptied_since,
        started_at=observed_times.started_at,
        settled=settled,
    )


def _scheme(view: View, current: Version | None) -> str:
    """Return the scheme of the next version.

    It changes if every ranked, active member lists the same other scheme first. So one old pod in a
    crash loop does not bring an old scheme back. If no active member can follow the scheme, it
    becomes the first scheme of the oldest active record, so the group is not stuck. A member that
    offers its rank counts as active here, since it still serves.
    """
    active = {
        member.name: member.record
        for member in view.by_age
        if member.record is not None and (member.is_active or member.is_offering)
    }
    firsts = [record.schemes[0] for record in active.values() if record.schemes]
    records = active.values()
    if current is None or not any(follows(record.schemes, current.scheme) for record in records):
        return firsts[0] if firsts else current.scheme if current else "jump"
    wanted = {active[name].schemes[:1] for name in current.ranks if name in active}
    first = wanted.pop() if len(wanted) == 1 else ()
    return first[0] if first else current.scheme


@attrs.define
class _RequestAnswers:
    """Apply requests to the pins and the token base.

    Each request is answered, even if only by a refusal. `room` is how many bytes the pins may take,
    so that no request keeps ranks from changing. `bytes` is counted along, because writing out all
    pins for each request takes a second per hundred requests.
    """

    pins: dict[str, str]
    token_base: int
    room: int
    bytes: int = 0
    because: list[str] = attrs.field(factory=list)
    answered: list[str] = attrs.field(factory=list)

    def grant(self, view: View, at_once: int) -> None:
        """Carry out the readable requests, oldest first, `at_once` at most.

        The next version answers the others.
        """
        oldest = sorted(view.requests.values(), key=lambda entry: (entry.mod_revision, entry.id))
        requests = [(entry.id, entry.request) for entry in oldest if entry.request is not None]
        self.bytes = _bytes_of(self.pins) if requests else 0
        for request_id, request in requests[:at_once]:
            self.answered.append(request_id)
            self.because.append(self._grant(request))

    def _grant(self, request: Request) -> str:
        if request.wish is Wish.PIN and request.role and request.member:
            grows_by = self._takes(request.role, request.member) - self._taken(request.role)
            if grows_by > 0 and self.bytes + grows_by > self.room:
                return f"refused to pin {request.role}: the version would be too large"
            self.bytes += grows_by
            self.pins[request.role] = request.member
            return f"pinned {request.role} to {request.member}"
        if request.wish is Wish.UNPIN and request.role in self.pins:
            self.bytes -= self._taken(request.role)
            del self.pins[request.role]
            return f"unpinned {request.role}"
        if request.wish is Wish.TOKEN_BASE and request.token_base > self.token_base:
            before, self.token_base = self.token_base, request.token_base
            return f"token base {before} -> {request.token_base}"
        return f"request {request.wish.value} changed nothing"

    def _taken(self, role: str) -> int:
        return self._takes(role, self.pins[role]) if role in self.pins else 0

    @staticmethod
    def _takes(role: str, member: str) -> int:
        return _bytes_of_one(role) + _bytes_of_one(member)


def _bytes_of(value: object) -> int:
    return len(_JSON.encode(value).encode())


def _bytes_of_one(name: str) -> int:
    """Return the bytes that a name takes among others, with its separator."""
    return _bytes_of(name) + len(",")
