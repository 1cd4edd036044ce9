"""Access the parts of a member that its public interface does not have.

The sidecar and `rink run` use this. Each function takes the engine's lock at most once, so its
result is of one moment.
"""

from __future__ import annotations

from typing import Any

from rink.base_rink import BaseRink
from rink.core.view import View
from rink.core.wording import describe
from rink.engine.engine import Engine
from rink.inspect.group_status import GroupStatus, status_of_view


def lease_and_deadline(member: BaseRink[Any, Any]) -> tuple[int, float]:
    """Return the live lease and its deadline by the member's clock.

    Both are 0 without a live lease. They come from the engine, because the record in the view is
    behind: right after a new lease was granted, it may still have the old lease.
    """
    engine = _engine_of(member)
    with engine.lock:
        lease = engine.node.member_lease
        return (lease.id, lease.deadline) if lease.is_alive else (0, 0.0)


def obstacle_of(member: BaseRink[Any, Any], role: str) -> str:
    """Return the role's owner, or the reason why the member cannot hold it."""
    return member._obstacle(role)  # noqa: SLF001 - a part of the same package


def create_revision_of(member: BaseRink[Any, Any]) -> int:
    """Return the create revision of the member's record, or 0 without one."""
    record = view_of(member).members.get(member.name)
    return record.create_revision if record else 0


def owner_of_name(member: BaseRink[Any, Any]) -> str:
    """Describe the record that keeps a member from joining, or return ""."""
    engine = member._opened  # noqa: SLF001 - a part of the same package
    if engine is None:
        return ""
    with engine.lock:
        other = engine.node.writer.taken_by
    return describe(other) if other is not None else ""


def member_count_of(member: BaseRink[Any, Any]) -> int:
    """Return how many live members the group has.

    A status has this number, too, but takes time for each awaited role.
    """
    return len(view_of(member).by_age)


def view_of(member: BaseRink[Any, Any]) -> View:
    """Return the group's keys as the member sees them now."""
    engine = _engine_of(member)
    with engine.lock:
        return engine.node.view


def prefix_of(member: BaseRink[Any, Any]) -> str:
    """Return the prefix of all keys."""
    return member._session.prefix  # noqa: SLF001 - a part of the same package


def has_other_members(member: BaseRink[Any, Any]) -> bool:
    """Return whether there is another member that does not leave."""
    others = (other for other in view_of(member).by_age if other.name != member.name)
    return any(other.is_active for other in others)


def status_without_waits(member: BaseRink[Any, Any]) -> GroupStatus:
    """Return the group's status without the roles that this member waits for.

    There may be 10,000 of them.
    """
    engine = _engine_of(member)
    with engine.lock:
        view, owned = engine.node.view, engine.node.owned
    return status_of_view(view, member.group, owned)


def raise_tokens(member: BaseRink[Any, Any], floor: int) -> None:
    """Raise the group's tokens above a floor, unless they are above it."""
    engine = _engine_of(member)
    with engine.lock:
        history = engine.node.view_state.history
        history.token_floor = max(history.token_floor, floor)
    engine.nudge()


def _engine_of(member: BaseRink[Any, Any]) -> Engine:
    return member._engine  # noqa: SLF001 - a part of the same package
