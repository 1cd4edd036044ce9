"""Ask etcd about leases of members.

A lease says when a record ends if its member is dead.

A record says nothing of that: a member that died a second ago has one until its lease ends. So each
lease is asked for, and the answers stand beside the group's status, which is of its keys alone.
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
"""Largest number of leases that `rink status` asks for without `--leases`, one request each."""

MAX_THREADS = 8
"""Largest number of requests under way at once."""

RENEWALS_PER_TTL = 6


@attrs.frozen
class LeaseAnswer:
    """Hold a member's lease.

    `seconds_left` is rounded down by etcd, and -1 means that the lease is over.

    If the member does not renew it, the lease ends then. It may end later, since a new etcd leader
    grants each lease its full TTL again.
    """

    ttl_s: int
    seconds_left: int

    @property
    def is_over(self) -> bool:
        """Return whether etcd does not know the lease any more.

        The record is gone then.
        """
        return self.seconds_left < 0

    @property
    def ends_within_s(self) -> int:
        """Return the seconds until the lease ends, if nobody renews it."""
        return min(self.seconds_left + 1, max(self.ttl_s, self.seconds_left))

    @property
    def not_renewed_s(self) -> int:
        """Return for how many seconds the lease has not been renewed, at least."""
        return max(0, self.ttl_s - self.ends_within_s)

    @property
    def renewal_overdue(self) -> bool:
        """Return whether a third of the TTL has passed without a renewal.

        Two renewals are missing then.
        """
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
    """Hold the leases by member; `problem` says why they are not known."""

    by_member: Mapping[str, LeaseAnswer] = attrs.field(factory=dict)
    problem: str = ""

    @property
    def overdue(self) -> dict[str, LeaseAnswer]:
        """Return the leases whose renewal is overdue."""
        return {name: one for name, one in self.by_member.items() if one.renewal_overdue}

    def as_json(self) -> dict[str, Any] | None:
        """Return plain JSON values, or None where the leases are not known."""
        if self.problem:
            return None
        return {name: one.as_json() for name, one in self.by_member.items()}


def read_leases(etcd: Etcd, view: View, *, however_many: bool) -> Leases:
    """Ask etcd for the leases of all members whose record can be read."""
    names = [member.name for member in view.by_age if member.record is not None]
    if len(names) > MAX_LEASES and not however_many:
        return Leases(
            problem=f"{len(names)} leases take {len(names)} requests to etcd: --leases reads them"
        )
    return read_leases_of(etcd, view, names)


def read_leases_of(etcd: Etcd, view: View, names: Iterable[str]) -> Leases:
    """Ask etcd for the leases of some members.

    Members whose record cannot be read are left out.

    Args:
        etcd: is asked, one request for each lease.
        view: the group's keys.
        names: the members; every name must be in the view.
    """
    records = [(name, view.members[name].lease, view.members[name].record) for name in names]
    asked = [(name, lease, record.ttl) for name, lease, record in records if record is not None]
    threads = ThreadPoolExecutor(MAX_THREADS)
    try:
        left = threads.map(etcd.time_to_live, [lease for _, lease, _ in asked])
        pairs = zip(asked, left, strict=True)
        return Leases({name: LeaseAnswer(ttl, seconds) for (name, _, ttl), seconds in pairs})
    except EtcdError as error:
        return Leases(problem=str(error))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
