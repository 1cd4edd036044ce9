"""Proclaim the next version as the coordinator, and prune old ones (R4).

Deliberately absent: an election. The oldest active record coordinates, and the proclaiming
transaction checks that it is still there. Times are absent too: every member keeps them, in its
`ObservedTimes`.
"""

from __future__ import annotations

import math

import attrs

from rink.core.effects import Effect, Level, Proclaim, Prune, Report
from rink.core.events import ProclaimAnswered, ProclaimFailed
from rink.core.next_version import MAX_REQUESTS_ANSWERED, draft, no_room, without_room
from rink.core.observed_times import ObservedTimes
from rink.core.ranks import RankSettings, Upcoming
from rink.core.record_index import is_same
from rink.core.retry_delay import backoff
from rink.core.values import Member, Proclaimed
from rink.core.view import View
from rink.core.wording import some
from rink.errors import EtcdTooLarge
from rink.plural import plural

MAX_KEPT_VERSIONS = 100
MAX_KEPT_BYTES = 1_000_000
PRUNE_BATCH = 10
"""Number of versions to prune in one write, so that pruning costs little per version."""

SHOW_TIMEOUT_S = 2.0
"""Longest wait for the view to show an answered proclamation, in seconds.

Then the same version is tried again. The view may never show it, because an operator may have
deleted the version before the group was listed anew. Trying again is harmless, since the
transaction checks everything that matters.
"""


@attrs.define
class Coordinator:
    """Keep the state of this member's own proclamations.

    `proclaiming` is the number of the version whose transaction is under way, or 0. After its end,
    the member waits until `retry_at` for a view with version `answered_number`, or with a revision
    above `refused_at`. `upcoming` is the next change of the ranks, and None during a proclamation.
    `request_count` is the number of requests that the proclamation answers. `requests_at_once` is
    the largest number for the next one: half of the number that etcd refused. `_sources` holds the
    inputs of the last draft if it changed nothing. It is empty while another draft is due.
    """

    settings: RankSettings
    proclaiming: int = 0
    answered_number: int = 0
    refused_at: float = -math.inf
    failures: int = 0
    retry_at: float = -math.inf
    pruned_below: int = 0
    left_out: frozenset[str] = frozenset()
    request_count: int = 0
    requests_at_once: int = MAX_REQUESTS_ANSWERED
    upcoming: Upcoming | None = None
    _sources: tuple[object, ...] = ()

    def coordinate(
        self, me: Member, view: View, observed_times: ObservedTimes, settled: bool, now: float
    ) -> tuple[list[Effect], float | None]:
        """Return what to proclaim and prune now, and when to look again.

        This sets `upcoming`. It drafts if an input has changed, or at the time of `upcoming`. The
        observed times need not be compared, since they change only with the records and the newest
        version.
        """
        # Invariant: at most one proclamation is under way, and a number is proclaimed again only
        # after its try has ended. `proclaiming` is set with the effect, and is reset only by the
        # answer, the failure, or the version itself in the view. So until then this returns early.
        sources = (view.records.standing, view.versions, view.requests, settled)
        look_at = self.upcoming.at if self.upcoming else None
        if is_same(sources, self._sources) and (look_at is None or now < look_at):
            return [], look_at
        self.upcoming, self._sources = None, ()
        if view.newest is not None and view.newest.version is None:
            return [], None  # a later Rink's version: keep held roles, decide nothing
        number = view.newest.number if view.newest else 0
        if self.proclaiming > number:
            return [], None
        if self.proclaiming:  # the watch showed the version before its answer came
            self._shown()
        if now < self.retry_at and (
            number < self.answered_number or view.revision <= self.refused_at
        ):
            return [], self.retry_at
        self.answered_number, self.refused_at = 0, -math.inf
        left_out, at_once = without_room(view), self.requests_at_once
        drafted = draft(
            me.name, view, observed_times, settled, now, self.settings, left_out, at_once
        )
        effects = self._report(left_out, view)
        if drafted.version is None:
            effects += self._prune(view)
        else:
            self.proclaiming, self.request_count = drafted.version.number, len(drafted.requests)
            after = view.newest.mod_revision if view.newest else 0
            effects.append(Proclaim(drafted.version, me.create_revision, after, drafted.requests))
            return effects, None  # its answer comes first
        self.upcoming, self._sources = drafted.upcoming, sources
        return effects, self.upcoming.at if self.upcoming else None

    def _report(self, left_out: frozenset[str], view: View) -> list[Effect]:
        """Report the members that have no room in a version, once."""
        new, self.left_out = left_out - self.left_out, left_out
        if not new:
            return []
        number = view.newest.number if view.newest else 0
        names = some([repr(name[:40]) for name in sorted(new)])
        text = f"version {number} does not rank {names}: {no_room()}"
        return [Report(Level.ERROR, text)]

    def _prune(self, view: View) -> list[Effect]:
        numbers = sorted(view.versions)
        kept = _kept_versions([view.versions[number] for number in reversed(numbers)])
        excess = len(numbers) - kept
        if kept < MAX_KEPT_VERSIONS:
            excess *= PRUNE_BATCH  # too many bytes: prune without waiting for ten versions
        if excess < PRUNE_BATCH or self.pruned_below == numbers[-kept]:
            return []
        self.pruned_below = numbers[-kept]
        return [Prune(self.pruned_below)]

    def answered(self, event: ProclaimAnswered, view: View, now: float, name: str) -> None:
        """Take the answer to a proclamation."""
        if event.number != self.proclaiming:
            return
        self.proclaiming = 0
        if event.applied:
            self._shown()
            self.answered_number, self.retry_at = event.number, now + SHOW_TIMEOUT_S
        else:
            # Another member's version came first, or this member's record is gone. The view shows
            # that soon, or shows it already if the watch was faster than the answer.
            self.refused_at = view.revision
            self._back_off(now, name)

    def _shown(self) -> None:
        """Note that the version is in etcd, so requests are tried again.

        Each following version tries at least one request.
        """
        self.proclaiming, self.failures = 0, 0
        self.requests_at_once = max(self.requests_at_once, 1)

    def failed(self, event: ProclaimFailed, now: float, name: str) -> str:
        """Note that a proclamation failed, and return what failed, for people.

        The same number is tried again. If etcd refused it for its size, it is tried at once with
        half of the requests, and finally without any, because ranks never wait for requests.
        """
        doing = f"proclaiming version {event.number}"
        if event.number != self.proclaiming:
            return doing
        self.proclaiming = 0
        if isinstance(event.error, EtcdTooLarge) and self.request_count:
            self.requests_at_once = self.request_count // 2
            requests = f"{self.request_count} {plural(self.request_count, 'request')}"
            return f"{doing} with {requests} ({self.requests_at_once} in the next try)"
        self.refused_at = math.inf
        self._back_off(now, name)
        return doing

    def _back_off(self, now: float, name: str) -> None:
        self.failures += 1
        self.retry_at = now + backoff(self.failures, name)


def _kept_versions(newest_first: list[Proclaimed]) -> int:
    """Return how many versions to keep: up to 100, by size, but at least 2."""
    total = 0
    for kept, entry in enumerate(newest_first):
        total += entry.bytes
        if kept >= MAX_KEPT_VERSIONS or (kept >= 2 and total > MAX_KEPT_BYTES):
            return kept
    return len(newest_first)
