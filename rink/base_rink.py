"""Implement the parts of both faces that do not wait."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NoReturn, Self, TypeVar

import attrs

from rink.arguments import check_seconds
from rink.callables import check_callback
from rink.core import events as ev
from rink.core.holds import Handle, Table
from rink.core.keys import check_name
from rink.core.values import Version
from rink.core.view import owner_of
from rink.engine.callbacks import Listeners
from rink.engine.engine import Engine
from rink.errors import ClosedError, ForkedProcessError, RoleTimeout, UsageError
from rink.inspect.member_status import MemberStatus, Status, status_of
from rink.on_role import Supervisor
from rink.roles import BaseRole
from rink.session import BaseSession
from rink.settings import member_settings
from rink.wait_ranked import rank_for_grants

R = TypeVar("R", bound=BaseRole)
S = TypeVar("S", bound=Supervisor)
F = TypeVar("F", bound=Callable[..., Any])


class BaseRink(Generic[R, S]):
    """Join a group, and hold roles in it. Safe from any thread.

    Args:
        session: the session to join with; it may carry many groups.
        group: the group's name: any non-empty string.
        name: this member's name, unique in the group; host name, pid and four hex digits if None.
        rebalance_delay: seconds this member waits before the group grows for it.
        initial_delay: seconds newcomers wait instead, while a group is starting.
        leave_delay: seconds that the rank of a dead member stays reserved.
        grace: seconds that user code has to release a lost role before its claim is given up. None
            sets no limit while this member stays. If it leaves without `wait`, the claim ends after
            `leave_timeout` and the rest of the lease.
        scheme: the mapping of roles to ranks: "jump", "first", "balanced:P", a registered one, or a
            list of schemes, best first. With "first" a leader moves only when its holder goes.
        stagger: how many ranks one version may add, or take from members that leave by plan.
        join_timeout: seconds until a join that waits for its name gives up; None sets no limit. If
            etcd has not answered yet, the first request that fails ends the join.
        leave_timeout: seconds that a leave waits for another member to take over. It waits as long
            again for handles to be released once `lost` is set, and for etcd to end the lease.
        handover_wait: seconds that a leave first waits for a successor. This member goes on
            serving, and the ranks of the others stay. So a rolling deploy moves each role once,
            even if old processes are stopped before new ones have started. While no member is left,
            their ranks stay reserved for as long, if `leave_delay` is not longer.
        labels: free text for people, in the record.
        on_coordinator_change: called with True when this member begins to coordinate the group,
            and with False when it stops.
        on_rank_change: called with this member's rank, or None.
        on_role_change: called with a name and True when an awaited role is granted, and with False
            when any held role is lost.

    Callbacks are plain functions on both faces. They run on a thread of their own, in order, and
    may not make blocking calls of this Rink.

    Raises:
        ConfigError: a setting cannot be used; the message names it.
        UsageError: `session` is not a Session, or is of the other face.
    """

    _face: str  # the face's public module
    _session_class: type[BaseSession]
    _role_class: type[R]
    _supervisor_class: type[S]
    _caller: Callable[[], int]
    """Function that returns a number for the calling thread or asyncio task."""

    def __init__(
        self,
        session: BaseSession,
        group: str,
        *,
        name: str | None = None,
        rebalance_delay: float = 60.0,
        initial_delay: float = 2.0,
        leave_delay: float = 0.0,
        grace: float | None = None,
        scheme: str | Sequence[str] = "jump",
        stagger: int | None = None,
        join_timeout: float | None = None,
        leave_timeout: float = 10.0,
        handover_wait: float = 0.0,
        labels: Mapping[str, str] | None = None,
        on_coordinator_change: Callable[[bool], Any] | None = None,
        on_rank_change: Callable[[int | None], Any] | None = None,
        on_role_change: Callable[[str, bool], Any] | None = None,
    ) -> None:
        if not isinstance(session, self._session_class):
            raise UsageError(
                f"group {group!r}: a {self._face}.Rink takes a {self._face}.Session first, not "
                f"{session!r}"
            )
        self._session = session
        self.group = check_name("group", group)
        self._settings = member_settings(
            name=name,
            ttl=session.ttl,
            margin=session.margin_set,
            rebalance_delay=rebalance_delay,
            initial_delay=initial_delay,
            leave_delay=leave_delay,
            grace=grace,
            scheme=scheme,
            stagger=stagger,
            join_timeout=join_timeout,
            leave_timeout=leave_timeout,
            handover_wait=handover_wait,
            labels=labels,
            joined=session.clock.wall(),
        )
        check_callback("on_coordinator_change", on_coordinator_change, "coordinates")
        check_callback("on_rank_change", on_rank_change, "rank")
        check_callback("on_role_change", on_role_change, "role", "is_held")
        self._listeners = Listeners(on_coordinator_change, on_rank_change, on_role_change)
        self._opened: Engine | None = None
        self._table = Table()  # the engine's table, once joined
        self._supervisors: list[S] = []

    # ── roles, without waiting ───────────────────────────────────────────────────────────────

    def get_role(self, name: str) -> R | None:
        """Return the role if it is mine now, else None. This never calls etcd.

        Raises:
            ConfigError: the name is empty or not a str.
            ClosedError: the group has been left.
            ForkedProcessError: called in a child of the process that joined.
        """
        gate = self._table.gate
        try:
            rank = gate.ranks.get(name)
        except TypeError:
            rank = None
        if rank is not None and gate.share is not None:
            share, engine = gate.share, self._opened
            if rank != share.rank and name not in share.gained and engine and not engine.forked:
                return None  # another member's: a short path, for a million calls a second
        if rank is not None:
            engine = self._engine  # a name that has a rank was checked before
        else:
            engine = self._ready(name)
            if gate.is_anothers(name, engine.node.placement):
                return None
        caller = sys._getframe(1)  # noqa: SLF001 - a walk through the frames would cost too much
        handle = Handle(name, None, (caller.f_code, caller.f_lasti), by=self._caller())
        role = self._role_class(engine, handle)
        if self._take(engine, handle):
            return role
        role.release()
        return None

    def can_take(self, name: str) -> bool:
        """Return whether `get_role` would grant the role now, without a handle."""
        engine, gate = self._ready(name), self._table.gate
        held = name in self._table.held or (
            gate.is_mine(name, engine.node.placement)
            and not gate.obstacle(name, engine.node.placement)
            and name not in self._table.lost
        )
        return held and engine.clock.now() < self._table.deadline

    def owner(self, name: str) -> str | None:
        """Return the member that owns the role in the newest version.

        Return None if nobody is ranked. The owner may not hold the role yet, because an earlier
        holder may not have released it.
        """
        engine = self._ready(name)
        version = engine.node.view.version
        return None if version is None else owner_of(version, name, engine.node.placement.rank)

    def _take(self, engine: Engine, handle: Handle, *, is_awaited: bool = False) -> bool:
        """Take a role on the caller's thread, and return whether that worked (R2)."""
        # Invariant: a grant needs a gate that is current in the same hold of the lock. The gate is
        # frozen, so what it allows is computed without the lock, where a user's scheme may be
        # called. Under the lock, `table.take` checks that the gate is still the published one, and
        # that the deadline lies ahead. If the gate was replaced meanwhile, this tries again with
        # the new one. So False is an answer for a gate that was current under the lock.
        name, table, placement = handle.role, engine.table, engine.node.placement
        while True:
            gate = table.gate
            is_free = gate.is_mine(name, placement) and not gate.obstacle(name, placement)
            with engine.lock:
                now = engine.clock.now()
                is_new = name not in table.held
                hold = table.take(gate, handle, now) if is_free else table.join(handle, now)
                if hold is not None and is_new:
                    hold.is_awaited = is_awaited
                    if is_awaited:
                        engine.callbacks.granted([hold])  # under the lock: before a loss is posted
                    engine.member_log.granted(hold)
                if hold is not None or table.gate is gate:
                    break
        if hold is None and gate.share is None and engine.left.is_set():
            raise self._closed()
        if hold is None and gate.share is not None:
            failed = placement.failure(name, gate.share.scheme, gate.share.size)
            if failed is not None:
                raise failed
        return hold is not None

    def _ready(self, name: str) -> Engine:
        check_name("role", name)
        return self._engine

    @property
    def _engine(self) -> Engine:
        """Return the engine of a joined group, or raise if it cannot be used."""
        engine = self._opened
        if engine is None:
            raise UsageError(f"group {self.group!r} has not been joined: use `with` or join()")
        if engine.forked:
            raise ForkedProcessError(
                f"group {self.group!r} was joined by the parent process: join in this process, "
                "with a session of its own"
            )
        if engine.is_interrupted():
            engine.refuse_interrupted(f"a call of group {self.group!r}")
        return engine

    def _closed(self) -> ClosedError:
        text = f"group {self.group!r} has been left by member {self.name!r}"
        failure = self._opened.failure if self._opened else None
        return ClosedError(f"{text}: its engine failed: {failure!r}" if failure else text)

    def _ended(self) -> ClosedError | None:
        """Return the error if the group was left or its engine failed, or None."""
        engine = self._opened
        return self._closed() if engine is not None and engine.left.is_set() else None

    # ── the group ────────────────────────────────────────────────────────────────────────────

    @property
    def name(self) -> str:
        """Return this member's name."""
        return self._settings.name

    @property
    def rank(self) -> int | None:
        """Return this member's rank in the newest version, or None."""
        return self._engine.node.rank

    @property
    def size(self) -> int:
        """Return the number of members that the newest version ranks."""
        version = self.version
        return len(version.ranks) if version else 0

    @property
    def version(self) -> Version | None:
        """Return the newest version, or None if none can be read."""
        return self._engine.node.view.version

    @property
    def is_coordinator(self) -> bool:
        """Return whether this member coordinates the group."""
        return self._engine.node.coordinates

    @property
    def members(self) -> tuple[MemberStatus, ...]:
        """Return every live member, oldest first."""
        return self.status().members

    @property
    def session_remaining(self) -> float:
        """Return the seconds until every role is lost without another renewal.

        It is negative after that time.
        """
        return self._engine.deadline - self._session.clock.now()

    def status(self) -> Status:
        """Return this member's knowledge of the group, as one frozen value."""
        engine = self._engine
        return status_of(engine.node, self.group, engine.clock, engine.lock)

    # ── parts of waits that the faces share ──────────────────────────────────────────────────

    def _refuse_second_join(self) -> None:
        if self._opened is not None:
            raise UsageError(
                f"group {self.group!r} was joined before with this Rink; make a new one"
            )

    def _open(self) -> Engine:
        self._opened = self._session._make_engine(  # noqa: SLF001 - a part of the same package
            self.group, self._settings, self._listeners
        )
        self._table = self._opened.table
        self._session._start_engine(self._opened)  # noqa: SLF001 - a part of the same package
        return self._opened

    def _give_up_join(self) -> None:
        """End a join at any stage, without leaving a live lease."""
        if self._opened is not None:
            self._opened.abandon()
            self._opened.post(ev.LeaveAsked(release_within=0.0))

    def _joined(self, engine: Engine) -> None:
        if engine.join_error is not None:
            raise engine.join_error
        for supervisor in self._supervisors:
            supervisor.start()

    def _is_settled(self) -> bool:
        """Return whether the group is settled and this member may take its roles.

        The watch may show this member's record before the transaction that wrote it is answered.
        So a member with a rank also needs an open gate.
        """
        engine = self._engine
        with engine.lock:
            is_open = not self._table.gate.closed_because or engine.node.share is None
            return engine.node.is_settled and is_open and not engine.left.is_set()

    def _is_ranked(self) -> bool:
        """Return whether this member has a rank under which roles can be granted."""
        return rank_for_grants(self._engine) is not None

    @staticmethod
    def _is_ending(engine: Engine) -> bool:
        """Return whether no role will be granted any more."""
        return engine.left.is_set() or engine.node.living.is_ending

    def _begin_wait(self, engine: Engine, handle: Handle, timeout: float | None) -> bool:
        """Take the role and return True, or else make the handle wait."""
        if timeout is not None:
            check_seconds("timeout", timeout)
        if self._take(engine, handle, is_awaited=True):
            return True
        with engine.lock:
            if self._is_ending(engine):
                raise self._closed()
            self._table.want(handle)
        engine.nudge()
        return False

    def _end_wait(self, engine: Engine, handle: Handle, timeout: float | None) -> None:
        """Raise the reason why a wait ended, unless it ended with a grant."""
        with engine.lock:
            if handle.hold is not None:
                return
        if handle.refused is not None:
            raise handle.refused
        if handle.signal.is_set() or engine.left.is_set():
            raise self._closed()
        raise self._not_granted(engine, handle, timeout)

    def _obstacle(self, name: str) -> str:
        """Return the role's owner, or the reason why this member cannot hold it."""
        engine = self._engine
        with engine.lock:
            lost = (name,) if name in self._table.lost else ()
            obstacles = engine.node.hold_obstacles(lost, engine.clock.now())
        # Without the lock: this may call a user's scheme.
        return obstacles.obstacle(name, engine.node.placement)

    def _not_granted(self, engine: Engine, handle: Handle, timeout: float | None) -> RoleTimeout:
        """Return the error of a timed-out wait for a role, with the obstacle."""
        name = handle.role
        with engine.lock:
            hold, gate = self._table.held.get(name), self._table.gate
        token = hold.token if hold is not None else gate.token
        why = self._obstacle(name)
        if handle.token_above and gate.share is not None and token <= handle.token_above:
            holds = "this member holds it" if hold is not None else "the next grant comes"
            needs = f"the call needs a token above {handle.token_above}"
            why = f"{holds} with token {token}, but {needs}"
        return RoleTimeout(
            f"role {name!r} of group {self.group!r} was not granted to {self.name!r} within "
            f"{timeout:g} s: {why}",
            role=name,
            group=self.group,
            member=self.name,
        )

    def _begin_leave(
        self, *, keep_rank: bool = False, wait: bool = False, now: bool = False
    ) -> Engine | None:
        """Begin to leave the group, and return the engine to wait for, if any."""
        engine = self._opened
        if engine is None or engine.forked or engine.left.is_set():
            return None
        engine.refuse_own_thread("leave()")
        engine.post(ev.LeaveAsked(keep_rank, math.inf if wait else None, now))
        return engine

    def _supervised(self, name: str) -> Callable[[F], F]:
        """Return the decorator of both faces' `on_role`."""
        check_name("role", name)

        def decorate(function: F) -> F:
            supervisor = self._supervisor_class(self, name, function)
            self._supervisors.append(supervisor)
            if self._opened is not None and self._opened.joined.is_set():
                supervisor.start()
            return function

        return decorate

    def __reduce__(self) -> NoReturn:
        raise UsageError("a Rink cannot be pickled: join in the process that uses it")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.group!r} as {self.name!r}>"


class Subscription:
    """Wake a thread after each step of an engine that changed something."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed = engine.clock.event()

    def __enter__(self) -> Self:
        self._engine.stepped.add(self._changed.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.stepped.remove(self._changed.set)

    def wait(self, timeout: float | None) -> None:
        """Wait for a change since the last wait, or for the next change."""
        self._engine.clock.wait(self._changed, timeout)
        self._changed.clear()


class GrantWatch:
    """Call back on the engine's thread whenever the gate is replaced.

    The callback must be short and must not block.
    """

    def __init__(self, engine: Engine, callback: Callable[[], None]) -> None:
        self._engine = engine
        self._callback = callback
        self._gate = engine.table.gate

    def __enter__(self) -> Self:
        self._engine.stepped.add(self._look)
        self._callback()  # the gate may have changed since it was read
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.stepped.remove(self._look)

    def _look(self) -> None:
        gate = self._engine.table.gate
        if gate is not self._gate:
            self._gate = gate
            self._callback()


def new_versions(engine: Engine, after: int) -> list[Version]:
    """Return the versions above `after`, each with the skipped numbers.

    The coordinator prunes old versions, so a caller that seldom asks may find a gap. An unreadable
    version is left out, and counts as skipped. If numbers have gone back, etcd was restored and the
    group began anew.
    """
    entries, newest = engine.node.view.versions, engine.node.view.newest
    if newest is not None and newest.number < after:
        after = newest.number - 1
    versions: list[Version] = []
    for number in sorted(number for number in entries if number > after):
        if (version := entries[number].version) is not None:
            versions.append(attrs.evolve(version, skipped=range(after + 1, number)))
            after = number
    return versions
