"""Keeps many roles wanted at once, without a thread for any of them; a `RoleSet` stands on it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from rink.core.holds import Wait
from rink.engine.engine import Engine
from rink.engine.signals import Signal
from rink.roles import BaseRole, Change

R = TypeVar("R", bound=BaseRole)


class Tracker(Generic[R]):
    """Waits for roles, and again after each loss. `tell` is called on the engine's thread."""

    def __init__(
        self,
        engine: Engine,
        role_class: type[R],
        names: list[str],
        tell: Callable[[Change | None], None],
    ) -> None:
        self.held: dict[str, R] = {}
        self.is_followed = False
        self._engine = engine
        self._role_class = role_class
        self._tell = tell
        self._waits = {name: Wait(name, Signal(engine.clock)) for name in names}
        self._closed = False

    def start(self) -> None:
        """Want every role."""
        for wait in self._waits.values():
            wait.signal.then(partial(self._granted, wait))
        with self._engine.lock:
            for wait in self._waits.values():
                self._engine.table.want(wait)
        self._engine.nudge()
        self._engine.left.then(partial(self._tell, None))

    def done(self, role: BaseRole) -> None:
        """Release a lost role, and want it again."""
        role.release()
        if self._closed:
            return
        wait = self._waits[role.name] = Wait(role.name, Signal(self._engine.clock))
        wait.signal.then(partial(self._granted, wait))
        with self._engine.lock:
            self._engine.table.want(wait)
        self._engine.nudge()

    def close(self) -> None:
        """Want nothing any more, and release everything."""
        self._closed = True
        with self._engine.lock:
            for wait in self._waits.values():
                self._engine.table.withdraw(wait)
        for role in list(self.held.values()):
            role.release()

    def _granted(self, wait: Wait) -> None:
        if wait.hold is None:
            return  # the group was left
        role = self._role_class(self._engine, wait.hold)
        if self._closed:
            role.release()
            return
        self.held[role.name] = role
        self._tell(Change(role, gained=True))
        role._signal().then(partial(self._lost, role))  # noqa: SLF001 - a friend of the handle

    def _lost(self, role: R) -> None:
        self.held.pop(role.name, None)
        self._tell(Change(role, gained=False))
        if not self.is_followed:
            self.done(role)
