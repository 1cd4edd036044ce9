"""Show the owner, the holder and the next owner of a role: `rink owner`.

No key names the holder of a role. A role counts as held if its owner's newest share has it and no
other record claims it. Then the owner's code has the role, or gets it on request (rule R2).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import attrs
import click
from rich.console import Group, RenderableType
from rich.text import Text

from rink.cli import observe, render
from rink.cli.exit_status import NO
from rink.cli.holding_since import Since, lost_since
from rink.cli.leases import Leases, read_leases_of
from rink.cli.options import (
    Target,
    announced,
    check_group,
    check_role,
    opened,
    outside,
    with_json,
    with_target,
)
from rink.core.placement import Placement
from rink.core.values import Member
from rink.core.view import View
from rink.inspect.group_status import status_of_view
from rink.inspect.read_group import read_group
from rink.inspect.standby import Standby, standbys


@attrs.frozen
class RoleSeen:
    """Hold the state of a role by the group's records.

    `holder` is None if no record claims the role by name or share. `why` is the reason why the role
    is not held. `since` is the version since which it is not held, if known.
    """

    role: str
    owner: str | None
    holder: str | None
    next: str | None
    held: bool = False
    why: str = ""
    since: Since | None = None

    def reason(self, now: str) -> str:
        """Return why the role is not held, and for how long by a wall clock."""
        return self.why if self.since is None else f"{self.why}, {self.since.text(now)}"


def roles_seen(view: View, group: str, roles: Iterable[str]) -> list[RoleSeen]:
    """Return the state of each role by the records, in the given order."""
    by_role = standbys(status_of_view(view, group), roles)
    placement = Placement()
    return [_role_seen(view, group, role, standby, placement) for role, standby in by_role.items()]


def _role_seen(
    view: View, group: str, role: str, standby: Standby, placement: Placement
) -> RoleSeen:
    owner = standby.owner
    others = [member for member in view.by_age if member.name != owner]
    claims = {member.name: why for member in others if (why := _named(member, role, placement))}
    # A member with an unreadable record or scheme claims every role, but counts as no holder.
    vague = {member.name: why for member in others if (why := _vague(member, placement))}
    base = RoleSeen(role, owner, None, standby.next)
    if claims:
        name, why = next(iter(claims.items()))
        since = lost_since(view, name, [role])
        return attrs.evolve(base, holder=name, why=f"{name} {why}", since=since)
    if vague:
        name, why = next(iter(vague.items()))
        return attrs.evolve(base, why=f"{name} {why}")
    if owner is None:
        return attrs.evolve(base, why=_why_nobody(view, group))
    return _of_owner(view, base, owner, placement)


def _of_owner(view: View, base: RoleSeen, owner: str, placement: Placement) -> RoleSeen:
    """Return the state of a role that only its owner's record may claim."""
    member = view.members.get(owner)
    if member is None or not member.lease:
        return attrs.evolve(
            base, why=f"{owner} is gone, and its rank is not given to another member yet"
        )
    record = member.record
    if record is None:
        return attrs.evolve(base, why=f"{owner} {_vague(member, placement)}")
    if base.role in record.draining:
        why = f"{owner} has not released an earlier grant of it"
        return attrs.evolve(base, holder=owner, why=why)
    if not record.shares or not placement.has(record.shares[0], base.role):
        return attrs.evolve(base, why=f"{owner} has not claimed it yet")
    return attrs.evolve(base, holder=owner, held=True)


def _named(member: Member, role: str, placement: Placement) -> str:
    """Return how the member's record claims exactly this role, or ""."""
    if member.record is None:
        return ""
    if role in member.record.draining:
        return "has not released it"
    for share in member.record.shares:
        if placement.has(share, role):
            return f"still claims it, as rank {share.rank} of {share.size}"
    return ""


def _vague(member: Member, placement: Placement) -> str:
    """Return why the member's record counts as claiming every role, or ""."""
    if member.record is None:
        return f"claims every role: its record {member.problem}"
    for share in member.record.shares:
        if not placement.can_follow(share.scheme):
            return f"claims roles by scheme {share.scheme!r}, which is not known here"
    return ""


def _why_nobody(view: View, group: str) -> str:
    version = view.version
    if version is None:
        return why_no_version(view, group)
    if not version.ranks:
        return "nobody has a rank"
    return f"scheme {version.scheme!r} is not known here"


def why_no_version(view: View, group: str) -> str:
    """Return why the group has no readable newest version."""
    if observe.is_empty(view):
        return f"there is no group {group!r}"
    if view.newest is None:
        return "the group has no version yet"
    return f"version {view.newest.number} {view.newest.problem}"


@click.command(short_help="Show the owner, holder and next owner of each ROLE of GROUP.")
@click.argument("group", callback=check_group)
@click.argument("roles", metavar="ROLE...", nargs=-1, required=True, callback=check_role)
@with_json
@with_target
@click.pass_context
def owner(
    ctx: click.Context, group: str, roles: tuple[str, ...], as_json: bool, target: Target
) -> None:
    """Show the owner, the holder and the next owner of each ROLE of GROUP.

    Exit status: 0 if every role is held, 3 if a role is not held, 1 if etcd does not answer.
    """
    with opened(target) as etcd:
        with target.reading(group):
            view = read_group(etcd, target.keys(group))
        seen_roles = roles_seen(view, group, roles)
        with announced(target, f"asking for the leases of group {group!r} at"):
            holders = {role.holder: None for role in seen_roles if role.holder is not None}
            leases = read_leases_of(etcd, view, holders)
    if as_json:
        facts: dict[str, Any] = {
            "group": group,
            "prefix": target.prefix,
            "revision": view.revision,
            "version": view.newest.number if view.newest else 0,
            "roles": [attrs.asdict(role) for role in seen_roles],
            "leases": leases.as_json(),
            "leases_problem": leases.problem,
        }
        click.echo(json.dumps(facts, indent=2))
    else:
        render.console().print(_role_table(seen_roles, leases, outside().clock.wall()))
    if not all(role.held for role in seen_roles):
        ctx.exit(NO)


def _role_table(seen_roles: Iterable[RoleSeen], leases: Leases, now: str) -> RenderableType:
    listing = render.Listing(("role", "owner", "holder", "next", "state"))
    why = []
    for role in seen_roles:
        names = [
            render.clean(name or "-") for name in (role.role, role.owner, role.holder, role.next)
        ]
        listing.add(*names, _held_text(role, leases))
        if not role.held:
            why.append(("not held", f"{role.role}: {role.reason(now)}", "yellow"))
    why += render.lease_lines(leases)
    return Group(listing, Text(""), render.titled(why)) if why else listing


def _held_text(role: RoleSeen, leases: Leases) -> Text:
    """Return "held" or "not held", green only if the lease is renewed."""
    if not role.held:
        return Text("not held", "bold yellow")
    is_doubtful = leases.problem or role.holder in leases.overdue
    return Text("held", "yellow" if is_doubtful else "green")
