"""Keeps many roles wanted at once, without a thread for any of them; a `RoleSet` stands on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Generic, TypeVar

from rink.core.holds import Handle
from rink.engine.engine import Engine, caller
from rink.engine.signals import Signal
from rink.errors import ForkedProcessError
from rink.roles import BaseRole, Change, warn_unreleased

R = TypeVar("R", bound=BaseRole)


class Tracker(Generic[R]):
    """Waits for roles, and again after each loss. `tell` is called on the engine's thread.

    Its own lock, which may be held where the engine's is taken and never the other way round,
    guards what the engine's thread and the user's both change.
    """

    def __init__(
        self,
        engine: Engine,
        role_class: type[R],
        names: list[str],
        tell: Callable[[Change[R] | None], None],
    ) -> None:
        self._inside = caller()  # of the body of the RoleSet's `with`
        self.held: dict[str, R] = {}
        self._is_followed = False
        self._engine = engine
        self._role_class = role_class
        self._tell = tell
        self._names = dict.fromkeys(names)
        self._wanted: dict[str, R] = {}  # not granted yet
        self._lost: dict[str, R] = {}  # not done yet
        self._told: set[R] = set()  # whoever iterates has heard of the grant, not yet of the loss
        self._over: set[R] = set()  # let go of before anybody had heard of the grant
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Want every role."""
        with self._lock:
            self._want(self._names)
        self._engine.nudge()
        self._engine.left.then(self._end)

    def _want(self, names: Iterable[str]) -> None:
        engine = self._engine
        handles = [Handle(name, Signal(engine.clock), self._inside) for name in names]
        for handle in handles:
            role = self._wanted[handle.role] = self._role_class(engine, handle)
            handle.signal.then(partial(self._when_granted, role, handle))
        with engine.lock:
            for handle in handles:
                engine.table.want(handle)

    def follow(self, iterates: bool) -> None:
        """Say whether somebody is told of each loss and calls `done`; if not, losses are released.

        That somebody stops, by a `break` or an error, must not leave a lost role unreleased.
        """
        if self._engine.forked:
            return
        with self._lock:
            self._is_followed = iterates
            lost = [] if iterates else list(self._lost.values())
            self._over |= set(lost) - self._told
        for role in lost:
            self.done(role)

    def is_news(self, change: Change[R]) -> bool:
        """Whether to tell whoever iterates: not of a grant that has been let go of again.

        A role that was lost while nobody iterated was released at once, and is another member's by
        now. Nobody may begin to work under it, so neither is its loss told.
        """
        role = change.role
        with self._lock:
            if change.gained:
                if self._closed or role in self._over:
                    return False
                self._told.add(role)
                return True
            was_told = role in self._told
            self._told.discard(role)
            self._over.discard(role)
            return was_told

    def done(self, role: BaseRole) -> None:
        """Release a lost role, and want it again; nothing where that has been done before."""
        with self._lock:
            if self._closed or self._lost.get(role.name) is not role:
                return
            del self._lost[role.name]
            role.release()
            self._want([role.name])
        self._engine.nudge()

    def close(self) -> None:
        """Want nothing any more, and release everything; nothing in a forked child."""
        if self._engine.forked:
            return
        with self._lock:
            self._closed = True
        for role in self._roles():
            role.release()
        self._engine.left.forget(self._end)
        self._forget()

    def drop(self) -> None:
        """As `close`, from a finalizer, for what is not closed: by message, nothing is locked.

        So the engine's thread may be in the midst of moving a role from one dict to the next: it
        looks at `_closed` once more after that.
        """
        if self._engine.forked:
            return
        self._closed = True
        roles = self._roles()
        for role in roles:
            role._drop()  # noqa: SLF001 - a friend of the handle
        self._engine.left.forget(self._end)
        self._forget()
        if roles:
            warn_unreleased("a RoleSet")

    def _roles(self) -> list[R]:
        return [*self._wanted.values(), *self.held.values(), *self._lost.values()]

    def _forget(self) -> None:
        self._wanted, self.held, self._lost = {}, {}, {}

    def _end(self) -> None:
        self._tell(None)

    def _when_granted(self, role: R, handle: Handle) -> None:
        if handle.hold is None:
            return  # the group was left, or nobody can be granted this role
        with self._lock:
            if self._closed:
                return  # close() has let go of it
            self.held[role.name] = role
            self._wanted.pop(role.name, None)
        if self._closed:
            role.release()
            return
        self._tell(Change(role, gained=True))
        role._signal().then(partial(self._when_lost, role))  # noqa: SLF001 - a friend of the handle

    def _when_lost(self, role: R) -> None:
        with self._lock:
            if self._closed:
                return
            self._lost[role.name] = role
            self.held.pop(role.name, None)
            is_followed = self._is_followed
            if not is_followed and role not in self._told:
                self._over.add(role)
        if self._closed:
            role.release()
            return
        self._tell(Change(role, gained=False))
        if not is_followed:
            self.done(role)


class BaseRoleSet(Generic[R]):
    """What a `RoleSet` is on both faces; its `with` makes the tracker, and closes it."""

    def __init__(self) -> None:
        self._tracker: Tracker[R] | None = None
        self._engine: Engine | None = None

    @property
    def held(self) -> Mapping[str, R]:
        """The roles held now, by name."""
        self._refuse_fork()
        return dict(self._tracker.held) if self._tracker else {}

    def _refuse_fork(self) -> None:
        if self._engine is not None and self._engine.forked:
            raise ForkedProcessError(
                "this RoleSet belongs to the parent process; join in this process instead"
            )

    def __del__(self) -> None:
        tracker = getattr(self, "_tracker", None)  # none where a signal handler raised before
        if tracker is not None:
            tracker.drop()
