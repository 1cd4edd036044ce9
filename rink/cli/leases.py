"""Ask etcd about the leases of members.

A dead member keeps its record until its lease ends. So each lease is read, and the answers are
shown with the group's status, which is computed from keys alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs

from rink.core.view import View
from rink.errors import EtcdError
from rink.etcd.api import Etcd

MAX_LEASES = 200
"""The maximum number of leases that `rink status` reads without `--leases`, a request each."""

MAX_THREADS = 8
"""The maximum number of requests in flight."""

RENEWALS_PER_TTL = 6


@attrs.frozen
class LeaseAnswer:
    """Hold etcd's answer about a member's lease.

    `seconds_left` is rounded down by etcd. -1 means that the lease is over. If the member does not
    renew the lease, it ends after this time. It may end later, since a new etcd leader grants each
    lease its full TTL again.
    """

    ttl_s: int
    seconds_left: int

    @property
    def is_over(self) -> bool:
        """Return whether etcd no longer has the lease and the record."""
        return self.seconds_left < 0

    @property
    def ends_within_s(self) -> int:
        """Return the seconds until the lease ends if it is not renewed."""
        return min(self.seconds_left + 1, max(self.ttl_s, self.seconds_left))

    @property
    def not_renewed_s(self) -> int:
        """Return the least number of seconds since the last renewal."""
        return max(0, self.ttl_s - self.ends_within_s)

    @property
    def renewal_overdue(self) -> bool:
        """Return whether a third of the TTL, or two renewals, was missed."""
        return 3 * (self.ttl_s - self.ends_within_s) >= self.ttl_s

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "ttl_s": self.ttl_s,
            "ends_within_s": self.ends_within_s,
            "renewal_overdue": self.renewal_overdue,
        }


@attrs.frozen
class Leases:
    """Hold the leases by member, or the `problem` of reading them."""

    by_member: Mapping[str, LeaseAnswer] = attrs.field(factory=dict)
    problem: str = ""

    @property
    def overdue(self) -> dict[str, LeaseAnswer]:
        """Return the leases whose renewal is overdue."""
        return {name: lease for name, lease in self.by_member.items() if lease.renewal_overdue}

    def as_json(self) -> dict[str, Any] | None:
        """Return plain JSON values, or None if the leases are not known."""
        if self.problem:
            return None
        return {name: lease.as_json() for name, lease in self.by_member.items()}


def read_leases(etcd: Etcd, view: View, *, however_many: bool) -> Leases:
    """Read the leases of all members whose record can be read."""
    names = [member.name for member in view.by_age if member.record is not None]
    if len(names) > MAX_LEASES and not however_many:
        takes = f"reading {len(names)} leases takes {len(names)} requests to etcd"
        return Leases(problem=f"{takes}: add --leases to read them")
    return read_leases_of(etcd, view, names)


def read_leases_of(etcd: Etcd, view: View, names: Iterable[str]) -> Leases:
    """Read the leases of some members, with one request for each.

    Every name must be in the view. Members with an unreadable record are left out.
    """
    records = [(name, view.members[name].lease, view.members[name].record) for name in names]
    readable = [(name, lease, record.ttl) for name, lease, record in records if record is not None]
    threads = ThreadPoolExecutor(MAX_THREADS)
    try:
        seconds_left = threads.map(etcd.time_to_live, [lease for _, lease, _ in readable])
        answers = zip(readable, seconds_left, strict=True)
        return Leases({name: LeaseAnswer(ttl, seconds) for (name, _, ttl), seconds in answers})
    except EtcdError as error:
        return Leases(problem=str(error))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
