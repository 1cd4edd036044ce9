"""Describe a group from its keys in etcd, for members and others.

The command line shows this without joining a group. A member's `status()` has all of this, and also
the state that only the member knows (`rink.inspect.member_status`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from rink.core import schemes
from rink.core.member_record import MemberRecord, Phase, Share
from rink.core.next_version import unrankable
from rink.core.placement import Placement
from rink.core.unsettled_records import unsettled_in
from rink.core.values import Member, Request, Version, Wish
from rink.core.view import View, shares_of
from rink.core.wording import some

UNREADABLE = "unreadable"
"""The phase of a member whose record cannot be read."""


@attrs.frozen
class MemberStatus:
    """Show one member, by its record.

    `phase` is "unreadable" if the record cannot be read.

    `no_rank_because` says why an active member cannot get a rank. It is empty for a member that has
    a rank, or only waits for its turn. `leaving` says what a leave waits for, as far as the record
    shows it. It is empty for a member that stays.
    """

    name: str
    phase: str
    rank: int | None
    version: int = 0
    shares: tuple[Share, ...] = ()
    draining: tuple[str, ...] = ()
    joined: str = ""
    labels: Mapping[str, str] = attrs.field(factory=dict)
    address: str = ""
    rebalance_delay: float | None = None
    ttl: int | None = None
    schemes: tuple[str, ...] = ()
    incarnation: str = ""
    coordinates_by: Mapping[str, float | None] = attrs.field(factory=dict)
    no_rank_because: str = ""
    leaving: str = ""


@attrs.frozen
class InTheWay:
    """Name a member that keeps the group from being settled, and why."""

    member: str
    why: str


@attrs.frozen
class GroupStatus:
    """Show a group as of etcd revision `revision`.

    `version` is 0 before the first version. `settled` is None if this process cannot compute it,
    because the group has pins and a custom scheme that is unknown here. `absent` lists members with
    a rank but without a live record. `settings_differ` maps a setting to its values, and each value
    to its members.
    """

    group: str
    revision: int
    version: int
    ranks: tuple[str, ...]
    scheme: str
    pins: Mapping[str, str]
    token_base: int
    because: tuple[str, ...]
    by: str
    proclaimed: str
    versions_kept: int
    coordinator: str | None
    settled: bool | None
    in_the_way: tuple[InTheWay, ...]
    members: tuple[MemberStatus, ...]
    absent: tuple[str, ...]
    settings_differ: Mapping[str, Mapping[str, tuple[str, ...]]]
    requests: tuple[str, ...]
    problems: tuple[tuple[str, str], ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain JSON values; no key is ever missing."""
        fields: dict[str, Any] = _plain(attrs.asdict(self, value_serializer=_sorted_set))
        for member in fields["members"]:
            member["coordinates"] = member["name"] == self.coordinator
        fields["problems"] = [{"key": key, "problem": what} for key, what in self.problems]
        return fields


def _plain(value: Any) -> Any:
    match value:
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def _sorted_set(_: Any, __: Any, value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


def status_of_view(view: View, group: str, owned: dict[str, Share] | None = None) -> GroupStatus:
    """Return the status of a group, from a view of its keys.

    `owned` is each ranked member's share of the newest version, if it is known already.
    """
    version = view.version
    ranks = version.ranks if version else ()
    live = {member.name for member in view.by_age}
    if owned is None:
        owned = owned_in(view)
    members = _members(view)
    return GroupStatus(
        group=group,
        revision=view.revision,
        version=view.newest.number if view.newest else 0,
        ranks=ranks,
        scheme=version.scheme if version else "",
        pins=dict(version.pins) if version else {},
        token_base=version.token_base if version else 0,
        because=version.because if version else (),
        by=version.by if version else "",
        proclaimed=version.proclaimed if version else "",
        versions_kept=len(view.versions),
        coordinator=view.coordinator.name if view.coordinator else None,
        settled=settled(view, owned),
        in_the_way=in_the_way(view, owned),
        members=members,
        absent=tuple(name for name in ranks if name not in live),
        settings_differ=_differences(members),
        requests=tuple(
            request_text(posted.request)
            for posted in sorted(view.requests.values(), key=lambda posted: posted.mod_revision)
            if posted.request is not None
        ),
        problems=problems_of(view),
    )


def owned_in(view: View) -> dict[str, Share]:
    """Return each ranked member's share of the newest version."""
    return shares_of(view.version, Placement().rank) if view.version else {}


def _members(view: View) -> tuple[MemberStatus, ...]:
    """Describe every live member, oldest first."""
    rank_of = {name: rank for rank, name in enumerate(view.version.ranks if view.version else ())}
    in_vain = unrankable(view)
    return tuple(
        _member(member, rank_of.get(member.name), in_vain.get(member.name, ""))
        for member in view.by_age
    )


def _member(member: Member, rank: int | None, no_rank_because: str) -> MemberStatus:
    record = member.record
    if record is None:
        return MemberStatus(member.name, UNREADABLE, rank)
    return MemberStatus(
        name=member.name,
        phase=record.phase.value,
        rank=rank,
        version=record.version,
        shares=record.shares,
        draining=record.draining,
        joined=record.joined,
        labels=record.labels,
        address=record.address,
        rebalance_delay=record.rebalance_delay,
        ttl=record.ttl,
        schemes=record.schemes,
        incarnation=record.incarnation,
        coordinates_by=record.leads_by,
        no_rank_because=no_rank_because,
        leaving=leaving_text(record),
    )


def leaving_text(record: MemberRecord) -> str:
    """Return what a leave waits for, by the member's record, or ""."""
    if record.phase is not Phase.OFFERING:
        return "leaving" if record.phase is Phase.LEAVING else ""
    wait_s = record.leads_by.get("handover_wait")
    bound = "" if wait_s is None else f" up to {wait_s:g} s"
    return f"leaving; waits{bound} for a successor"


def settled(view: View, owned: dict[str, Share]) -> bool | None:
    """Return whether every live member follows the newest version.

    None means that this process cannot compute it. A group without members is not settled, since a
    script may wait for its members.
    """
    if view.version is None or not view.by_age:
        return False
    if _can_place(view.version):
        return not unsettled_in(view.by_age, owned)
    return None if not in_the_way(view, owned) else False


def in_the_way(view: View, owned: dict[str, Share]) -> tuple[InTheWay, ...]:
    """Return the live members that keep the group unsettled, oldest first."""
    version = view.version
    if version is None:
        return ()
    sure = _can_place(version)
    reasons = [(m.name, _why(m, owned.get(m.name), version.number, sure)) for m in view.by_age]
    return tuple(InTheWay(name, why) for name, why in reasons if why)


def _can_place(version: Version) -> bool:
    return not version.pins or schemes.can_follow(version.scheme)


def _why(member: Member, share: Share | None, number: int, sure: bool) -> str:
    record = member.record
    if record is None:
        return f"its record {member.problem}, so it claims every role"
    why = []
    if record.draining:
        why.append(f"has not released {some(record.draining)}")
    # A scheme that is unknown here cannot place pins. Then only ranks are compared.
    claims = [claim if sure else _bare(claim) for claim in record.shares]
    if share is not None and share not in claims:
        why.append(f"has not taken up rank {share.rank} of {share.size} (version {number})")
    why += [_still_claims(claim, share) for claim in claims if claim != share]
    return ", ".join(dict.fromkeys(why))


def _bare(share: Share) -> Share:
    return attrs.evolve(share, gained=frozenset(), taken=frozenset())


def _still_claims(old: Share, share: Share | None) -> str:
    text = f"still claims rank {old.rank} of {old.size}"
    if share is None or (old.rank, old.size) != (share.rank, share.size):
        return text
    if old.scheme != share.scheme:
        return f"{text} by scheme {old.scheme}"
    return f"{text} with the pins of an earlier version"


def problems_of(view: View) -> tuple[tuple[str, str], ...]:
    """Return every unreadable key, clutter, and each record without a lease."""
    unbound = [
        (f"members/{member.name}", "has no lease: it claims nothing and cannot coordinate")
        for member in view.members.values()
        if not member.lease
    ]
    return tuple(sorted({*view.problems, *unbound}))


def request_text(request: Request) -> str:
    """Return the text of an operator's request."""
    match request.wish:
        case Wish.PIN:
            return f"pin {request.role} to {request.member}"
        case Wish.UNPIN:
            return f"unpin {request.role}"
        case Wish.TOKEN_BASE:
            return f"raise the token base to {request.token_base}"


def _differences(members: tuple[MemberStatus, ...]) -> dict[str, dict[str, tuple[str, ...]]]:
    """Return the settings that differ, with the members of each value.

    The most common value comes first.
    """
    differences: dict[str, dict[str, tuple[str, ...]]] = {}
    coordinating = {setting: None for member in members for setting in member.coordinates_by}
    for setting in ("ttl", "rebalance_delay", "schemes", *coordinating):
        members_of: dict[str, list[str]] = {}
        for member in members:
            if setting in member.coordinates_by:
                value = member.coordinates_by[setting]
                members_of.setdefault(_text(value), []).append(member.name)
            elif setting not in coordinating and member.ttl is not None:  # its record can be read
                members_of.setdefault(_text(getattr(member, setting)), []).append(member.name)
        if len(members_of) > 1:
            by_count = sorted(members_of.items(), key=lambda item: -len(item[1]))
            differences[setting] = {value: tuple(names) for value, names in by_count}
    return differences


def _text(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return ", ".join(value)
    return repr(float(value)).removesuffix(".0")  # with all digits, to tell values apart
