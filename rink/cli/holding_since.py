"""Find the version since which a member holds roles that it does not own.

No key has the time of a loss. But each version shows the owner of a role, and has the time of its
proclamation, by its coordinator's clock. The age shown to people is right only if this clock agrees
with this machine's clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import attrs

from rink.core import schemes
from rink.core.placement import Placement
from rink.core.view import View, owner_of

SHOWN_IN_MINUTES_FROM_S = 120
SHOWN_IN_HOURS_FROM_S = 7200


@attrs.frozen
class Since:
    """Name the version that took a role from a member.

    `or_before` is true if older versions are not kept.
    """

    version: int
    by: str
    proclaimed: str
    or_before: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return attrs.asdict(self)

    def text(self, now: str) -> str:
        """Return the version and its age in words, by this machine's clock."""
        words = f"since version {self.version}" + " or before" * self.or_before
        ago = _ago(self.proclaimed, now)
        return f"{words}, {ago} ago by {self.by}'s clock" if ago and not self.or_before else words


def seconds_between(start: str, end: str) -> float | None:
    """Return the seconds between two wall clocks, or None if unknown."""
    try:
        return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
    except (ValueError, TypeError):  # TypeError: only one of them has a time zone
        return None


def _ago(then: str, now: str) -> str:
    """Return the time between two wall clocks, or "" if they disagree."""
    seconds = seconds_between(then, now)
    if seconds is None or seconds < 0:
        return ""
    if seconds < SHOWN_IN_MINUTES_FROM_S:
        return f"{seconds:.0f} s"
    if seconds < SHOWN_IN_HOURS_FROM_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def lost_since(view: View, member: str, roles: Iterable[str]) -> Since | None:
    """Return the version since which a member has not owned these roles.

    For several roles, return the earliest of these versions. Return None if the member owns all of
    the roles in the newest version, if a version cannot be read, or if its scheme is unknown here.
    """
    rank_of = Placement().rank
    not_owned = set(roles)
    since = None
    for number in sorted(view.versions, reverse=True):
        version = view.versions[number].version
        if version is None or not schemes.can_follow(version.scheme):
            return None
        not_owned = {role for role in not_owned if owner_of(version, role, rank_of) != member}
        if not not_owned:
            return since
        since = Since(number, version.by, version.proclaimed)
    return None if since is None else attrs.evolve(since, or_before=True)


def draining_since(view: View) -> dict[str, Since]:
    """Return the version since which each member drains, if it is known."""
    since = {
        member.name: lost_since(view, member.name, member.record.draining)
        for member in view.by_age
        if member.record is not None and member.record.draining
    }
    return {name: found_since for name, found_since in since.items() if found_since is not None}
