"""Show roles and the group as JSON objects.

The group is shown as by the command line's `--json`, with facts that only the member knows.
"""

from __future__ import annotations

from typing import Any

from rink import _member_internals, aio
from rink.inspect.version_diff import steps
from rink.sidecar.consumers import Turn
from rink.sidecar.errors import Refused
from rink.sidecar.membership import Membership
from rink.sidecar.service import Service

MAX_VERSIONS = 20
"""The maximum number of versions in a history, as in `rink history`."""


def role_fields(service: Service, membership: Membership, role: str) -> dict[str, Any]:
    """Return whether a role is held here now, or why it is not.

    A role is held until its told end, even after a loss. After a loss, `state` is `lost`, and the
    consumer begins no new work.
    """
    turn, now = service.turns.turn(role), service.clock()
    is_held = turn is not None and now < turn.until_ms
    rink = membership.rink
    return {
        "held": is_held,
        "state": (turn.lost_at_ms is None and "held") or "lost" if turn and is_held else "none",
        "token": turn.token if turn else None,
        "until_ms": turn.until_ms if turn else 0,
        "now_ms": now,
        "left_ms": max(0, turn.until_ms - now) if turn else 0,
        "owner": rink.owner(role) if rink else None,
        "why": _why(turn, is_held) if turn else service.member.obstacle(role),
    }


def _why(turn: Turn, is_held: bool) -> str:
    if turn.lost_at_ms is not None:
        return f"lost: {turn.why}"
    return "" if is_held else "its end has passed"


def status_fields(service: Service, membership: Membership) -> dict[str, Any]:
    """Return the group as this member sees it, and this sidecar's consumers."""
    rink, now = membership.rink, service.clock()
    group = (
        {"prefix": _member_internals.prefix_of(rink), **rink.status().as_json()} if rink else None
    )
    return {
        "state": membership.state.name.lower(),
        "trouble": membership.trouble,
        "draining": service.draining,
        "life": service.life,
        "now_ms": now,
        "consumers": [
            {
                "consumer": consumer.name,
                "has_stream": consumer.stream is not None,
                "turns": [_turn_fields(turn) for turn in consumer.turns.values()],
                "waiting": list(consumer.waiting),
            }
            for consumer in service.turns.consumers.values()
        ],
        "group": group,
    }


def _turn_fields(turn: Turn) -> dict[str, Any]:
    """Return a turn without its grant, which is a secret of its consumer."""
    state = "held" if turn.lost_at_ms is None else "lost"
    return {
        "role": turn.role,
        "token": turn.token,
        "state": state,
        "until_ms": turn.until_ms,
        "why": turn.why,
    }


def member_fields(membership: Membership) -> dict[str, Any]:
    """Return the members of the group."""
    rink = _joined(membership)
    status = _member_internals.status_without_waits(rink).as_json()
    fields = {name: status[name] for name in ("group", "revision", "members")}
    return {"prefix": _member_internals.prefix_of(rink), **fields}


def history_fields(membership: Membership) -> dict[str, Any]:
    """Return the newest versions and their changes."""
    rink = _joined(membership)
    view = _member_internals.view_of(rink)
    return {
        "group": rink.group,
        "prefix": _member_internals.prefix_of(rink),
        "revision": view.revision,
        "versions": [step.as_json() for step in steps(view)[-MAX_VERSIONS:]],
    }


def _joined(membership: Membership) -> aio.Rink:
    if membership.rink is None:
        why = membership.trouble and f": {membership.trouble}"
        raise Refused(409, f"the group is not joined: {membership.state.value}{why}")
    return membership.rink
