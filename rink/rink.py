"""Offer the blocking face: `Rink` and `RoleSet`."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self, TypeVar

from rink.arguments import check_seconds
from rink.base_rink import BaseRink, GrantWatch, Subscription, new_versions
from rink.core.holds import Handle
from rink.core.keys import check_name
from rink.core.values import Version
from rink.engine.caller_context import made_at, warn_in_event_loop
from rink.engine.clock import SIGNAL_CHECK_INTERVAL_S, ClockEvent
from rink.engine.engine import Engine
from rink.engine.signals import Signal
from rink.errors import ClosedError
from rink.on_role import ThreadSupervisor
from rink.report_interval import REPORT_INTERVAL_S
from rink.role_set import BaseRoleSet, Tracker
from rink.roles import Change, Role
from rink.session import Session
from rink.wait_ranked import RankWait
from rink.with_statements import PlainFor, PlainWith

GO_ON_INTERVAL_S = 1.0
"""Seconds between two calls of `go_on` during a wait."""

F = TypeVar("F", bound=Callable[[Role], Any])


class Rink(PlainWith, BaseRink[Role, ThreadSupervisor]):  # noqa: D101 - documented by its base
    __doc__ = BaseRink.__doc__
    _face = "rink"
    _session_class = Session
    _role_class = Role
    _supervisor_class = ThreadSupervisor
    _caller = staticmethod(threading.get_ident)

    def join(self) -> Self:
        """Join the group.

        This returns once the record exists and the view is loaded. The member may have no rank yet.

        Raises:
            EtcdError: etcd could not be reached, or refused.
            MemberNameTaken: another live member has this name, and had it for `join_timeout`.
            UsageError: this Rink was joined before.
        """
        warn_in_event_loop("Rink.join()")
        self._refuse_second_join()
        try:
            engine = self._open()
            engine.joined.wait()
            self._joined(engine)
        except BaseException:  # also Ctrl-C, at any step
            self._give_up_join()
            raise
        return self

    def leave(self, keep_rank: bool = False, *, wait: bool = False, now: bool = False) -> None:
        """Hand every role over, and leave the group.

        First it blocks until a waiting member has this member's rank, at most `handover_wait`. Then
        it blocks until the group goes on without this member, at most `leave_timeout`. Then `lost`
        is set, and it blocks until user code has released its roles, again at most `leave_timeout`.
        A role that is not released by then stays claimed until the lease ends by itself, within the
        TTL. After that, only the fencing token guards it. An ERROR line names the handle. A second
        leave does nothing, and so does one in a forked child.

        Args:
            keep_rank: keep the rank for a planned restart under the same name within `leave_delay`,
                so nothing moves. A second leave with `keep_rank` keeps no rank, and gives up every
                role at once.
            wait: wait for handles without a limit, or up to `grace`.
            now: skip `handover_wait`; if a leave is under way, end that wait.
        """
        warn_in_event_loop("Rink.leave()")
        self._end_leave(self._begin_leave(keep_rank=keep_rank, wait=wait, now=now))

    def _end_leave(self, engine: Engine | None) -> None:
        if engine is None:
            return
        while not engine.left.wait(REPORT_INTERVAL_S):
            engine.report_leaving()
        if not any(supervisor.is_here() for supervisor in self._supervisors):
            for supervisor in self._supervisors:
                supervisor.join()

    def __enter__(self) -> Self:
        return self.join()

    def __exit__(self, *_: object) -> None:
        self.leave()

    # ── roles ────────────────────────────────────────────────────────────────────────────────

    def await_role(self, name: str, timeout: float | None = None, *, token_above: int = 0) -> Role:
        """Wait until the role is mine, and return it.

        Args:
            name: any non-empty string.
            timeout: seconds; None waits without a limit. Ctrl-C ends the wait at any time.
            token_above: the token of an earlier grant. Wait for a grant with a greater token, also
                if this member holds the role. It costs at most one write of this member's record.
                Use it if the role passes to another process beside this member.

        Raises:
            RoleTimeout: the timeout is over; the message names the member in the way.
            ClosedError: the group was left meanwhile.
            WrongThreadError: called from a callback, which would wait for itself.
        """
        engine = self._ready(name)
        engine.refuse_own_thread("await_role()")
        warn_in_event_loop("Rink.await_role()")
        signal = Signal(engine.clock)
        handle = Handle(name, signal, made_at(), by=self._caller(), token_above=token_above)
        role = Role(engine, handle)
        try:
            if not self._begin_wait(engine, handle, timeout):
                signal.wait(timeout)
                self._end_wait(engine, handle, timeout)
        except BaseException:  # Ctrl-C, at any time: withdraw, or release the granted role
            role.release()
            raise
        return role

    def roles(self, names: Iterable[str]) -> RoleSet:
        """Return a context manager that holds each role while it is mine.

        The held roles change as the ranks do.
        """
        return RoleSet(self, [check_name("role", name) for name in names])

    def on_role(self, name: str) -> Callable[[F], F]:
        """Run the decorated function on its own thread while the role is held.

        It is called with the `Role` and must return soon after `role.lost`. It runs again after a
        loss, and after an error, with backoff. If it returns while the role is held, the role is
        kept, and it runs again with the next grant. Use this before or after `join`.
        """
        return self._supervised(name)

    # ── the group ────────────────────────────────────────────────────────────────────────────

    def wait_settled(self, timeout: float | None = None) -> bool:
        """Wait until the group is settled.

        It is settled when every live member follows the newest version and nothing drains.

        Returns:
            True if it is settled; False after `timeout` seconds, or if the group was left.

        Raises:
            ConfigError: the timeout is not a number of 0 or more.
        """
        engine = self._engine
        engine.refuse_own_thread("wait_settled()")
        until = _until(engine, timeout)
        with Subscription(engine) as changes:
            while not self._is_settled():
                left = until - engine.clock.now()
                if engine.left.is_set() or left <= 0:
                    return False
                changes.wait(left)
        return True

    def wait_ranked(self, timeout: float | None = None) -> int:
        """Wait until this member has a rank, and roles can be granted under it.

        Right after `join()` a member is rarely ranked: the first member waits for its own version,
        and the others for their delays. `get_role` returns None until then.

        Args:
            timeout: seconds; None waits without a limit.

        Returns:
            The rank, 0 or above.

        Raises:
            RoleTimeout: the timeout is over; the message says when the group grows for this member.
            ClosedError: the group was left meanwhile.
        """
        engine = self._engine
        engine.refuse_own_thread("wait_ranked()")
        warn_in_event_loop("Rink.wait_ranked()")
        until = _until(engine, timeout)
        wait = RankWait(engine)
        with Subscription(engine) as changes:
            while (rank := wait.rank()) is None:
                left = until - engine.clock.now()
                if self._is_ending(engine):
                    raise self._closed()
                if timeout is not None and left <= 0:
                    raise wait.timed_out(timeout)
                changes.wait(wait.pause(left))
        return rank

    def _role_if_mine(
        self, name: str, timeout: float | None, go_on: Callable[[], None]
    ) -> Role | None:
        """Wait until it is known whether the role is mine, and return it or None.

        Wait until this member is ranked. If it owns the role, wait until the previous holder has
        released it. So None always means that another member owns the role. It raises as
        `await_role` does. `timeout` is for both waits. `go_on` is called about once a second, and
        may raise to end the wait.
        """
        engine = self._ready(name)
        engine.refuse_own_thread("a wait for a rank")
        until = _until(engine, timeout)
        wait = RankWait(engine)
        with Subscription(engine) as changes:
            while True:
                go_on()
                if self._is_ending(engine):
                    raise self._closed()
                is_ranked = wait.rank() is not None
                # The newest version decides who owns the role. The gate may be an earlier one's.
                if is_ranked:
                    role = self.get_role(name)
                    if role is not None or self.owner(name) != self.name:
                        return role
                left = until - engine.clock.now()
                if timeout is not None and left <= 0:
                    if is_ranked:
                        raise self._not_granted(engine, Handle(name), timeout)
                    raise wait.timed_out(timeout)
                pause = min(left, GO_ON_INTERVAL_S)
                changes.wait(pause if is_ranked else wait.pause(pause))

    def _watch_grants(self, callback: Callable[[], None]) -> GrantWatch:
        """Return a context manager that calls back when grants may change."""
        return GrantWatch(self._engine, callback)

    def versions(self) -> Iterator[Version]:
        """Yield the newest version, then each later one when it is proclaimed.

        The iteration ends when the group is left. About the last hundred versions are kept. The
        `skipped` of a version has the numbers that are missing before it. Code that only needs the
        newest ranks can ignore it.
        """
        engine = self._engine
        engine.refuse_own_thread("versions()")
        newest = engine.node.view.newest
        number = newest.number - 1 if newest else 0
        with Subscription(engine) as changes:
            while self._engine is engine:  # reading `_engine` raises in a forked child
                for version in new_versions(engine, number):
                    number = version.number
                    yield version
                if engine.left.is_set():
                    return
                changes.wait(None)


def _until(engine: Engine, timeout: float | None) -> float:
    """Return the time at which a wait ends; infinity for the timeout None."""
    seconds = math.inf if timeout is None else check_seconds("timeout", timeout)
    return engine.clock.now() + seconds


class RoleSet(PlainFor, BaseRoleSet[Role]):
    """Hold each of several roles while it is mine.

    This is a context manager and an iterator of changes. `held` maps names to roles at this moment.
    Iterate to get each change. Asking for the next change releases a role that was lost, so finish
    its work before that. If nobody iterates, a lost role is released at once, and later iterations
    skip its changes. The iteration ends when the group is left.
    """

    def __enter__(self) -> Self:
        self._changed = ClockEvent()
        self._begin(self._changed.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def __iter__(self) -> Iterator[Change[Role]]:
        if self._tracker is None or self._engine is None:
            raise ClosedError("iterate a RoleSet inside its `with`")
        self._refuse_fork()
        self._engine.refuse_own_thread("iterating a RoleSet")
        self._tracker.follow(True)
        try:
            while (change := self._next_change(self._tracker)) is not None:
                yield change
                self._refuse_fork()
                if change.lost:
                    self._tracker.done(change.role)
        finally:
            self._tracker.follow(False)

    def _next_change(self, tracker: Tracker[Role]) -> Change[Role] | None:
        while True:
            is_over = tracker.is_over  # read first: changes before the end are returned
            if (change := tracker.take()) is not None:
                return change
            if is_over:
                self._changed.set()  # wake the next thread that iterates
                return None
            self._changed.wait(SIGNAL_CHECK_INTERVAL_S)
            self._changed.clear()
