"""Decide whether this member may grant, and grant its free roles (R2).

The member's own life, lease, record or rank can each close the gate for every role. The claims of
other members keep single roles from it (`rink.core.claims`).
"""

from __future__ import annotations

from collections.abc import Collection

from rink.core import effects as do
from rink.core.effects import Effect
from rink.core.holds import Table
from rink.core.lease import MemberLease
from rink.core.lifecycle import Living
from rink.core.member_record import Share
from rink.core.placement import Placement
from rink.core.record_writer import Writer
from rink.core.view import View

NOT_RANKED = "not ranked yet"
"""Reason of a gate that is closed to a member without a rank; see `rink.core.why_not_held`."""


def why_closed(
    name: str,
    living: Living,
    lease: MemberLease,
    writer: Writer,
    view: View,
    share: Share | None,
    awaits: str,
    unrankable: str,
) -> str:
    """Return which part of R2 forbids every grant, or an empty string.

    `awaits` says why the newest version is not followed yet; `share` is then of an older version.
    `unrankable` says why the member waits for a rank in vain.
    """
    # Invariant: "" means that this member's record in the view claims `share` of the view's newest
    # version. It also means that no unsettled write could replace the record. So each member that
    # grants by a later view finds this claim there. The order of the checks decides only which
    # reason people read.
    newest, own = view.newest, view.members.get(name)
    if not living.serves:
        return f"the member is {living.state.value}"
    if not lease.is_alive:
        return "the session is lost; the member joins anew"
    if newest is None:
        return "no version has been proclaimed yet"
    if newest.version is None:
        return f"version {newest.number} {newest.problem}"
    if awaits:
        return awaits
    if share is None:
        text = f"version {newest.number} does not rank this member"
        return f"{text}: {unrankable}" if unrankable else NOT_RANKED
    if not writer.is_settled or writer.known is None:
        return "this member is still writing its record"
    if writer.known.shares[:1] != (share,):
        return "this member's record does not claim the newest share yet"
    if own is None or own.mod_revision != writer.compare:
        return "this member's record has not come back through the watch yet"
    return ""


def grant(
    table: Table,
    placement: Placement,
    now: float,
    unplaced: Collection[str] = (),
    only_new: bool = False,
) -> list[Effect]:
    """Grant the awaited roles that are free, and refuse those without a rank.

    The `unplaced` roles are tried by the next step. With `only_new`, only the roles that are new
    since the last look are tried. With a new share, all roles are new.
    """
    gate, effects = table.gate, list[Effect]()
    assert gate.share is not None, "a gate without a share lets nothing through"
    new = table.waits.sort(gate.share, placement, unplaced)
    for role in new if only_new else table.waits.all_mine():
        failed = placement.failure(role, gate.share.scheme, gate.share.size)
        if failed is not None:
            effects += [do.Refuse(handle) for handle in table.refuse(role, failed)]
        elif not gate.obstacle(role, placement):
            effects += [do.Grant(handle) for handle in table.grant(role, now)]
    return effects
