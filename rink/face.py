"""Give both faces what they have in common: what does not wait."""

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
    """A group, as one member of it sees it. Safe from any thread.

    Args:
        session: the session to join with; it may carry many groups.
        group: the group's name: any non-empty string.
        name: this member's name, unique in the group; host name, pid and four hex digits if None.
        rebalance_delay: seconds this member waits before the group grows for it.
        initial_delay: seconds newcomers wait instead, while a group is starting.
        leave_delay: seconds that the rank of a member which is gone stays reserved.
        grace: seconds that user code has to release a lost role before its claim is given up;
            None: as long as it takes, while this member stays. If it leaves without `wait`, the
            claim ends after `leave_timeout` and the rest of the lease.
        scheme: how roles are mapped to ranks: "jump", "first", "balanced:P", a registered one, or a
            list of those, best first. With "first" a leader moves only when its holder goes.
        stagger: how many ranks one version may add, or take from members that leave by plan.
        join_timeout: seconds until a join that waits for its name gives up; None: as long as it
            takes. Where etcd has not answered yet, the first request that fails ends the join.
        leave_timeout: seconds that leaving waits for another member to take over, as many for
            handles to be released once `lost` is set, and as many for etcd to end the lease.
        handover_wait: seconds that leaving first waits for a successor. This member goes on
            serving, and the ranks of the others stay. So a rolling deploy moves each role once,
            even if old processes are stopped before new ones have started. While no member is left,
            their ranks stay reserved for as long, if `leave_delay` is not longer.
        labels: free text for people, in the record.
        on_coordinator_change: called with True when this member begins to coordinate the group,
            with False when it ceases to.
        on_rank_change: called with this member's rank, or None.
        on_role_change: called with a name and True when a role that was awaited is granted, and
            with False when any held role is lost.

    Callbacks are plain functions on both faces. They run on a thread of their own, in order, and
    may not make blocking calls of this Rink.

    Raises:
        ConfigError: a setting cannot be used; the message names it.
        UsageError: `session` is not a Session, or is of the other face.
    """

    _face: str  # the module that users know this face by
    _session_class: type[BaseSession]
    _role_class: type[R]
    _supervisor_class: type[S]
    _caller: Callable[[], int]
    """Returns a number for the thread, or asyncio task, that calls."""

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
        self._table = Table()  # of the engine, once joined; empty before
        self._supervisors: list[S] = []

    # ── roles, without waiting ───────────────────────────────────────────────────────────────

    def get_role(self, name: str) -> R | None:
        """Return the role if it is mine now, else None. Never asks etcd anything.

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
                return None  # known to be another member's: the short way, a million times a second
        if rank is not None:
            engine = self._engine  # a name that has a rank has been checked
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
        """Return whether `get_role` would grant the role now.

        It makes no handle.
        """
        engine, gate = self._ready(name), self._table.gate
        held = name in self._table.held or (
            gate.is_mine(name, engine.node.placement)
            and not gate.obstacle(name, engine.node.placement)
            and name not in self._table.lost
        )
        return held and engine.clock.now() < self._table.deadline

    def owner(self, name: str) -> str | None:
        """Return the member that owns the role in the newest version.

        None where nobody is ranked. Its owner may not hold it yet: an earlier holder may not have
        released it.
        """
        engine = self._ready(name)
        version = engine.node.view.version
        return None if version is None else owner_of(version, name, engine.node.placement.rank)

    def _take(self, engine: Engine, handle: Handle, *, is_awaited: bool = False) -> bool:
        """Take a role on the caller's thread (R2).

        Compute outside the lock, then check and register under it.
        """
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
                        engine.callbacks.granted([hold])  # with the lock held: before its loss is
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
        """Return the engine of a joined group.

        Raises the error that says why there is none.
        """
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
        """Return the error of a group that was left, or whose engine failed.

        None where it goes on.
        """
        engine = self._opened
        return self._closed() if engine is not None and engine.left.is_set() else None

    # ── what is known of the group ───────────────────────────────────────────────────────────

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
        """Return how many members the newest version ranks."""
        version = self.version
        return len(version.ranks) if version else 0

    @property
    def version(self) -> Version | None:
        """Return the newest version, or None where none can be read."""
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
        """Return the seconds until every role is lost if nothing is answered.

        It is negative once that has passed.
        """
        return self._engine.deadline - self._session.clock.now()

    def status(self) -> Status:
        """Return everything that is known here, as one frozen value."""
        engine = self._engine
        return status_of(engine.node, self.group, engine.clock, engine.lock)

    # ── waiting: what the faces share ────────────────────────────────────────────────────────

    def _refuse_second_join(self) -> None:
        if self._opened is not None:
            raise UsageError(
                f"group {self.group!r} was joined before with this Rink; make a new one"
            )

    def _open(self) -> Engine:
        self._opened = self._session.make_engine(self.group, self._settings, self._listeners)
        self._table = self._opened.table
        self._session.start_engine(self._opened)
        return self._opened

    def _give_up_join(self) -> None:
        """Leave no live lease behind, however far the join had come."""
        if self._opened is not None:
            self._opened.abandon()
            self._opened.post(ev.LeaveAsked(release_within=0.0))

    def _joined(self, engine: Engine) -> None:
        if engine.join_error is not None:
            raise engine.join_error
        for supervisor in self._supervisors:
            supervisor.start()

    def _is_settled(self) -> bool:
        """Return whether the group is settled and this member may take roles.

        A member that is not ranked has none to take. The watch may show this member's record before
        the transaction that wrote it is answered.
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
        """Return whether nothing will be granted any more."""
        return engine.left.is_set() or engine.node.living.is_ending

    def _begin_wait(self, engine: Engine, handle: Handle, timeout: float | None) -> bool:
        """Take the role if it is mine and free, else make the handle wait.

        Return whether it was taken.
        """
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
        """Raise what a wait that is over ended with, unless it was a grant."""
        with engine.lock:
            if handle.hold is not None:
                return
        if handle.refused is not None:
            raise handle.refused
        if handle.signal.is_set() or engine.left.is_set():
            raise self._closed()
        raise self._not_granted(engine, handle, timeout)

    def _obstacle(self, name: str) -> str:
        """Return who owns a role, or what keeps this member from holding it."""
        engine = self._engine
        with engine.lock:
            lost = (name,) if name in self._table.lost else ()
            obstacles = engine.node.hold_obstacles(lost, engine.clock.now())
        # Without the lock: this may call a user's scheme.
        return obstacles.obstacle(name, engine.node.placement)

    def _not_granted(self, engine: Engine, handle: Handle, timeout: float | None) -> RoleTimeout:
        """Return the error of a timed-out wait for a role, with who holds it up."""
        name = handle.role
        with engine.lock:
            hold, gate = self._table.held.get(name), self._table.gate
        token = hold.token if hold is not None else gate.token
        why = self._obstacle(name)
        if handle.token_above and gate.share is not None and token <= handle.token_above:
            holds = "this member holds it" if hold is not None else "the next grant is"
            why = f"{holds} with token {token}, and it needs one above {handle.token_above}"
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
        """Begin to leave the group, and return the engine to wait for.

        None where there is nothing to wait for.
        """
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
    """Wakes a thread after each step of an engine that changed something."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._changed = engine.clock.event()

    def __enter__(self) -> Self:
        self._engine.stepped.add(self._changed.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.stepped.remove(self._changed.set)

    def wait(self, timeout: float | None) -> None:
        """Wait for the next change, or the one that has not been waited for yet."""
        self._engine.clock.wait(self._changed, timeout)
        self._changed.clear()


class GrantWatch:
    """Calls back whenever ranks, claims or the session have changed.

    Args:
        engine: of the member.
        callback: called on the engine's thread; it must be short and must not block.
    """

    def __init__(self, engine: Engine, callback: Callable[[], None]) -> None:
        self._engine = engine
        self._callback = callback
        self._gate = engine.table.gate

    def __enter__(self) -> Self:
        self._engine.stepped.add(self._look)
        self._callback()  # it may have changed since the gate was read
        return self

    def __exit__(self, *_: object) -> None:
        self._engine.stepped.remove(self._look)

    def _look(self) -> None:
        gate = self._engine.table.gate
        if gate is not self._gate:
            self._gate = gate
            self._callback()


def new_versions(engine: Engine, after: int) -> list[Version]:
    """Return the versions above `after`, each with what it skipped.

    The coordinator prunes old versions, so whoever asks seldom may find a gap. A version that
    cannot be read is left out, too, and so counts as skipped. Numbers that have gone back are of a
    group that began anew, in an etcd that was set back.
    """
    found, newest = engine.node.view.versions, engine.node.view.newest
    if newest is not None and newest.number < after:
        after = newest.number - 1
    versions: list[Version] = []
    for number in sorted(number for number in found if number > after):
        if (version := found[number].version) is not None:
            versions.append(attrs.evolve(version, skipped=range(after + 1, number)))
            after = number
    return versions
