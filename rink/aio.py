"""Offer the asyncio face, with the same names and the same engine.

The engine runs on its own thread, and never in the caller's event loop. So a loop that is blocked
for longer than the TTL keeps its lease and its roles. Each call here passes a message to the
engine, and the engine calls back into the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Self, TypeVar

from rink._asyncio import in_loop, soon_in_loop, wait_in_loop
from rink.aio_await_role import AwaitedRole
from rink.aio_role import Lost, Role
from rink.arguments import check_seconds
from rink.core.holds import CodePlace, Handle
from rink.core.keys import check_name
from rink.core.schemes import SchemeFailed, UnknownScheme, rank_of
from rink.core.schemes import register as register_scheme
from rink.core.values import Version
from rink.engine.caller_context import caller_id, made_at
from rink.engine.engine import Engine
from rink.engine.signals import Signal
from rink.errors import (
    ClosedError,
    ConfigError,
    EtcdAuth,
    EtcdClusterChanged,
    EtcdCompacted,
    EtcdError,
    EtcdTls,
    EtcdTooLarge,
    EtcdUnavailable,
    ForkedProcessError,
    JoinError,
    MemberNameTaken,
    RinkError,
    RoleError,
    RoleLost,
    RoleTimeout,
    StaleToken,
    StateError,
    UsageError,
    WrongThreadError,
)
from rink.event_loops import asyncio_loop
from rink.face import BaseRink, new_versions
from rink.face_misuse import AsyncFor, AsyncWith
from rink.inspect.member_status import MemberStatus, Status
from rink.on_role import TaskSupervisor
from rink.report_interval import REPORT_INTERVAL_S
from rink.role_set import BaseRoleSet, Tracker
from rink.roles import Change
from rink.session import BaseSession
from rink.wait_ranked import RankWait

# The same names as in `rink`, so one import is enough. Only classes that wait are different.
__all__ = [
    "Change", "ClosedError", "ConfigError", "EtcdAuth", "EtcdClusterChanged", "EtcdCompacted",
    "EtcdError", "EtcdTls", "EtcdTooLarge", "EtcdUnavailable", "ForkedProcessError", "JoinError",
    "Lost", "MemberNameTaken", "MemberStatus", "Rink", "RinkError", "Role", "RoleError", "RoleLost",
    "RoleSet", "RoleTimeout", "SchemeFailed", "Session", "StaleToken", "StateError", "Status",
    "UnknownScheme", "UsageError", "Version", "WrongThreadError", "rank_of", "register_scheme",
]  # fmt: skip

F = TypeVar("F", bound=Callable[["Role"], Awaitable[Any]])


class Session(AsyncWith, BaseSession):  # noqa: D101 - documented by its base
    __doc__ = BaseSession.__doc__

    async def close(self, timeout: float | None = None) -> None:
        """Leave every group and close the connection.

        A second close does nothing, and so does a close in a forked child.

        Args:
            timeout: seconds to wait at most, half of them for roles to be released. None: as long
                as `Rink.leave` waits.

        Raises:
            ConfigError: the timeout cannot be used.
        """
        within = None if timeout is None else check_seconds("timeout", timeout) / 2
        if self._is_over:
            return
        asyncio_loop()  # before anything is closed
        engines = self._begin_close(within)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                for engine in engines:
                    while not await wait_in_loop(engine.left, REPORT_INTERVAL_S):
                        engine.report_leaving()
        await asyncio.to_thread(self._end_close)

    async def __aenter__(self) -> Self:
        asyncio_loop()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Rink(AsyncWith, BaseRink[Role, TaskSupervisor]):  # noqa: D101 - documented by its base
    __doc__ = BaseRink.__doc__
    _face = "rink.aio"
    _session_class = Session
    _role_class = Role
    _supervisor_class = TaskSupervisor
    _caller = staticmethod(caller_id)

    # ── join and leave ───────────────────────────────────────────────────────────────────────

    async def join(self) -> Self:
        """Join the group.

        Returns once the record exists and the view is loaded. The member may not be ranked yet.

        Raises:
            EtcdError: etcd could not be reached, or refused.
            MemberNameTaken: another live member has this name, and had it for `join_timeout`.
            UsageError: this Rink was joined before, or no event loop of asyncio runs here.
        """
        asyncio_loop()  # before anything is opened
        self._refuse_second_join()
        try:
            engine = self._open()
            await wait_in_loop(engine.joined)
            self._joined(engine)
        except BaseException:  # also if cancelled, at any step
            self._give_up_join()
            raise
        return self

    async def leave(
        self, keep_rank: bool = False, *, wait: bool = False, now: bool = False
    ) -> None:
        """Hand every role over, and leave the group.

        First it waits until a waiting member has this member's rank, at most `handover_wait`. Then
        it waits until the group goes on without this member, at most `leave_timeout`. Then `lost`
        is set, and it waits until user code has released its roles, again at most `leave_timeout`.
        A role that is not released by then stays claimed until the lease ends by itself, within the
        TTL. After that, only the fencing token guards it. An ERROR line names the handle. A
        cancelled leave goes on. A second leave does nothing, and so does one in a forked child.

        Args:
            keep_rank: for a planned restart under the same name within `leave_delay`: the rank is
                kept, and nothing moves. A second leave with `keep_rank` keeps no rank, and gives up
                every role at once.
            wait: wait for handles without a limit, or up to `grace`.
            now: skip `handover_wait`; if a leave is under way, end that wait.
        """
        await self._end_leave(self._begin_leave(keep_rank=keep_rank, wait=wait, now=now))

    async def _end_leave(self, engine: Engine | None) -> None:
        if engine is None:
            return
        while not await wait_in_loop(engine.left, REPORT_INTERVAL_S):
            engine.report_leaving()
        for supervisor in self._supervisors:
            await supervisor.end()

    async def __aenter__(self) -> Self:
        return await self.join()

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    # ── roles ────────────────────────────────────────────────────────────────────────────────

    def await_role(
        self, name: str, timeout: float | None = None, *, token_above: int = 0
    ) -> AwaitedRole:
        """Wait until the role is mine.

        `await` returns the role. `async with` also runs a body under it.

        Args:
            name: any non-empty string.
            timeout: seconds; None waits without a limit. Cancelling the task ends the wait.
            token_above: the token of an earlier grant. Wait for a grant with a greater token, also
                if this member holds the role. It costs at most one write of this member's record.
                Use it if the role passes to another process beside this member.

        Raises:
            RoleTimeout: the timeout is over; the message says who is in the way.
            ClosedError: the group was left meanwhile.
        """
        self._ready(name)
        place = made_at()
        return AwaitedRole(name, lambda: self._acquire(name, timeout, place, token_above), place)

    async def _acquire(
        self, name: str, timeout: float | None, place: CodePlace, token_above: int
    ) -> Role:
        engine = self._engine
        signal = Signal(engine.clock)
        handle = Handle(name, signal, place, by=self._caller(), token_above=token_above)
        role = Role(engine, handle)
        try:
            if not self._begin_wait(engine, handle, timeout):
                await wait_in_loop(signal, timeout)
                self._end_wait(engine, handle, timeout)
        except BaseException:  # cancelled: withdraw, or release the role if it was granted
            role.release()
            raise
        return role

    def roles(self, names: Iterable[str]) -> RoleSet:
        """Return an async context manager that holds whichever roles are mine."""
        return RoleSet(self, [check_name("role", name) for name in names])

    def on_role(self, name: str) -> Callable[[F], F]:
        """Run the coroutine function in its own task while the role is held.

        It is called with the `Role`, and cancelled when the role is lost. It runs again after a
        loss, and after an error, with backoff. If it returns while the role is held, the role is
        kept, and it runs again with the next grant. Use this before or after `join`.
        """
        return self._supervised(name)

    # ── the group ────────────────────────────────────────────────────────────────────────────

    async def wait_settled(self, timeout: float | None = None) -> bool:
        """Wait until the group is settled.

        It is settled when every live member follows the newest version and nothing drains.

        Returns:
            Whether it is settled: False after `timeout` seconds, or if the group was left.

        Raises:
            ConfigError: the timeout is no number of 0 or more.
        """
        engine = self._engine
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), _changes(engine) as changed:
                while not self._is_settled() and not engine.left.is_set():
                    await changed.wait()
                    changed.clear()
        return self._is_settled()

    async def wait_ranked(self, timeout: float | None = None) -> int:
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
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        wait = RankWait(engine)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), _changes(engine) as changed:
                while wait.rank() is None and not self._is_ending(engine):
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(wait.pause()):
                            await changed.wait()
                    changed.clear()
        if (rank := wait.rank()) is not None:
            return rank
        if timeout is None or self._is_ending(engine):
            raise self._closed()
        raise wait.timed_out(timeout)

    async def versions(self) -> AsyncIterator[Version]:
        """Yield the newest version, then each one as it is proclaimed.

        The iteration ends when the group is left. The last hundred versions are kept. A version's
        `skipped` has the numbers that are missing before it. Code that only needs the newest ranks
        can ignore it.
        """
        engine = self._engine
        newest = engine.node.view.newest
        number = newest.number - 1 if newest else 0
        async with _changes(engine) as changed:
            while self._engine is engine:  # this raises in a forked child
                for version in new_versions(engine, number):
                    number = version.number
                    yield version
                if engine.left.is_set():
                    return
                await changed.wait()
                changed.clear()


@contextlib.asynccontextmanager
async def _changes(engine: Engine) -> AsyncIterator[asyncio.Event]:
    """Yield an event that is set after each step that changed something."""
    changed = asyncio.Event()
    wake = in_loop(changed.set)
    engine.stepped.add(wake)
    try:
        yield changed
    finally:
        engine.stepped.remove(wake)


class RoleSet(AsyncFor, BaseRoleSet[Role]):
    """Hold those of several roles that are mine.

    This is an async context manager and iterator. `held` maps names to roles at this moment.
    Iterate to get each change. Asking for the next change releases a role that was lost, so finish
    its work before that. If nobody iterates, a lost role is released at once, and later iterations
    skip its changes. The iteration ends when the group is left.
    """

    def __init__(self, rink: Rink, names: list[str]) -> None:
        super().__init__()
        self._rink = rink
        self._names = names
        self._changed = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._engine = self._rink._engine  # noqa: SLF001 - a part of the same face
        wake = soon_in_loop(self._changed.set)
        self._tracker = Tracker(self._engine, Role, self._names, wake)
        try:
            self._tracker.start()
        except BaseException:  # also Ctrl-C: no role may stay wanted
            self._tracker.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._tracker is not None:
            self._tracker.close()

    async def __aiter__(self) -> AsyncIterator[Change[Role]]:
        if self._tracker is None:
            raise ClosedError("iterate a RoleSet inside its `async with`")
        self._refuse_fork()
        self._tracker.follow(True)
        try:
            while (change := await self._next_change(self._tracker)) is not None:
                yield change
                self._refuse_fork()
                if change.lost:
                    self._tracker.done(change.role)
        finally:
            self._tracker.follow(False)

    async def _next_change(self, tracker: Tracker[Role]) -> Change[Role] | None:
        while True:
            is_over = tracker.is_over  # read first: changes before the end are returned
            if (change := tracker.take()) is not None or is_over:
                return change
            self._changed.clear()  # a change since then sets it later, in this loop
            await self._changed.wait()
