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

from rink import errors
from rink._asyncio import in_loop, soon_in_loop, wait_in_loop
from rink.aio_await_role import AwaitedRole
from rink.aio_role import Lost, Role
from rink.arguments import check_seconds
from rink.base_rink import BaseRink, new_versions
from rink.core.holds import CodePlace, Handle
from rink.core.keys import check_name
from rink.core.schemes import SchemeFailed, UnknownScheme, rank_of
from rink.core.schemes import register as register_scheme
from rink.core.values import Version
from rink.engine.caller_context import caller_id, made_at
from rink.engine.engine import Engine
from rink.engine.signals import Signal
from rink.errors import *  # noqa: F403 - all errors are public
from rink.errors import ClosedError
from rink.event_loops import asyncio_loop
from rink.inspect.member_status import MemberStatus, Status
from rink.on_role import TaskSupervisor
from rink.report_interval import REPORT_INTERVAL_S
from rink.role_set import BaseRoleSet, Tracker
from rink.roles import Change
from rink.session import BaseSession
from rink.wait_ranked import RankWait
from rink.with_statements import AsyncFor, AsyncWith

# The same names as in `rink`, so one import is enough. Only classes that wait are different.
__all__ = [
    "Change", "Lost", "MemberStatus", "Rink", "Role", "RoleSet", "SchemeFailed", "Session",
    "Status", "UnknownScheme", "Version", "rank_of", "register_scheme",
]  # fmt: skip
__all__ += errors.__all__

F = TypeVar("F", bound=Callable[["Role"], Awaitable[Any]])


class Session(AsyncWith, BaseSession):  # noqa: D101 - documented by its base
    __doc__ = BaseSession.__doc__

    async def close(self, timeout: float | None = None) -> None:
        """Leave every group and close the connection; see `rink.Session.close`."""
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

    async def join(self) -> Self:
        """Join the group, as `rink.Rink.join` does.

        Raises:
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
        """Hand every role over, and leave the group, as `rink.Rink.leave` does.

        If the task is cancelled, the member leaves all the same.
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

    def await_role(
        self, name: str, timeout: float | None = None, *, token_above: int = 0
    ) -> AwaitedRole:
        """Wait until the role is mine, as `rink.Rink.await_role` does.

        `await` returns the role. `async with` also runs a body under it. Cancelling the task ends
        the wait.
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
        """Return an async context manager that holds each role while it is mine."""
        return RoleSet(self, [check_name("role", name) for name in names])

    def on_role(self, name: str) -> Callable[[F], F]:
        """Run the coroutine function in its own task while the role is held.

        It is called with the `Role`, and cancelled when the role is lost. It runs again after a
        loss, and after an error, with backoff. If it returns while the role is held, the role is
        kept, and it runs again with the next grant. Use this before or after `join`.
        """
        return self._supervised(name)

    async def wait_settled(self, timeout: float | None = None) -> bool:
        """Wait until the group is settled, as `rink.Rink.wait_settled` does."""
        engine = self._engine
        seconds = None if timeout is None else check_seconds("timeout", timeout)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), _changes(engine) as changed:
                while not self._is_settled() and not engine.left.is_set():
                    await changed.wait()
                    changed.clear()
        return self._is_settled()

    async def wait_ranked(self, timeout: float | None = None) -> int:
        """Wait until this member has a rank, as `rink.Rink.wait_ranked` does."""
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
        """Yield the newest version, then each one, as `rink.Rink.versions` does."""
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
    """Hold each of several roles while it is mine, as `rink.RoleSet` does.

    This is an async context manager and iterator. Asking for the next change releases a role that
    was lost, so finish its work before that.
    """

    async def __aenter__(self) -> Self:
        self._changed = asyncio.Event()
        self._begin(soon_in_loop(self._changed.set))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close()

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
