"""Keeps many roles wanted at once, without a thread for any of them; a `RoleSet` stands on it."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Generic, TypeVar

from rink.core.holds import Handle
from rink.engine.caller_context import made_at
from rink.engine.engine import Engine
from rink.engine.signals import Signal
from rink.errors import ForkedProcessError
from rink.roles import RELEASED, BaseRole, Change, warn_unreleased

R = TypeVar("R", bound=BaseRole)


class Tracker(Generic[R]):
    """Waits for roles, and again after each loss.

    What happens is kept until somebody takes it; a grant that is over before that is forgotten, so
    what is kept is bounded by the number of names. `wake` is called, mostly on the engine's thread,
    when there is something to take, or nothing more will come.

    Its own lock, which may be held where the engine's is taken and never the other way round,
    guards what the engine's thread and the user's both change.

    Attributes:
        held: the roles held now, by name.
        is_over: nothing more will come.
    """

    def __init__(
        self,
        engine: Engine,
        role_class: type[R],
        names: list[str],
        wake: Callable[[], None],
    ) -> None:
        self.held: dict[str, R] = {}
        self.is_over = False
        self._is_followed = False
        self._engine = engine
        self._made_at = made_at()  # of every handle: the `with` of a RoleSet, mostly
        self._role_class = role_class
        self._wake = wake
        self._names = dict.fromkeys(names)
        self._wanted: dict[str, R] = {}  # not granted yet
        self._lost: dict[str, R] = {}  # not done yet
        # Each with True for its grant and False for its loss, in order.
        self._untold: collections.OrderedDict[tuple[R, bool], object] = collections.OrderedDict()
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Ask for every role."""
        with self._lock:
            self._want(self._names)
        self._engine.nudge()
        self._engine.left.then(self._end)

    def _want(self, names: Iterable[str]) -> None:
        engine = self._engine
        handles = [Handle(name, Signal(engine.clock), self._made_at) for name in names]
        for handle in handles:
            role = self._wanted[handle.role] = self._role_class(engine, handle)
            handle.signal.then(partial(self._when_granted, role, handle))
        with engine.lock:
            for handle in handles:
                engine.table.want(handle)

    def follow(self, iterates: bool) -> None:
        """Set whether a consumer is told of each loss and calls `done`.

        If not, losses are released. That somebody stops, by a `break` or an error, must not leave a
        lost role unreleased.
        """
        if self._engine.forked:
            return
        with self._lock:
            self._is_followed = iterates
            lost = [] if iterates else list(self._lost.values())
            for role in lost:
                self._forget_untold(role)
        for role in lost:
            self.done(role)

    def take(self) -> Change[R] | None:
        """Return the next change to deliver, oldest first, or None.

        Without the lock: a signal handler may leave the group in the midst of it, and that waits
        for the engine, which takes the lock to tell of a loss.
        """
        try:
            (role, gained), _ = self._untold.popitem(last=False)
        except KeyError:
            return None
        return Change(role, gained)

    def _forget_untold(self, role: R) -> bool:
        """Drop an undelivered grant together with its loss.

        Return whether one was dropped. The role is released at once and another member's soon:
        nobody may begin to work under it.
        """
        if self._untold.pop((role, True), self) is self:
            return False
        self._untold.pop((role, False), None)
        return True

    def _forget_grants(self) -> None:
        """Drop undelivered grants of all roles at the end, with their losses."""
        untold = list(iter(self.take, None))
        forgotten = {change.role for change in untold if change.gained}
        for change in untold:
            if change.role not in forgotten:
                self._untold[change.role, change.gained] = None

    def done(self, role: BaseRole) -> None:
        """Release a lost role, and ask for it again.

        It does nothing where that has been done before.
        """
        with self._lock:
            if self._closed or self._lost.get(role.name) is not role:
                return
            del self._lost[role.name]
            role.release()
            if self._engine.node.living.is_ending:
                return  # whoever leaves with thousands of roles lets go of them in half the time
            self._want([role.name])
        self._engine.nudge()

    def close(self) -> None:
        """Release everything, and ask for nothing any more.

        In a forked child it does nothing.
        """
        if self._engine.forked:
            return
        try:
            with self._lock:
                self._closed = True
                self._forget_grants()
            for role in self._roles():
                role.release()
            self._engine.left.forget(self._end)
            self._forget()
        finally:
            self._end()

    def drop(self) -> None:
        """Close an unclosed tracker from a finalizer.

        It works by message, and locks nothing. So the engine's thread may be in the midst of moving
        a role from one dict to the next: it looks at `_closed` once more after that.
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
        self.is_over = True
        self._wake()

    def _when_granted(self, role: R, handle: Handle) -> None:
        if handle.hold is None:
            return  # the group was left, or nobody can be granted this role
        with self._lock:
            if self._closed:
                return  # close() has let go of it
            self.held[role.name] = role  # before it is told: who is told may look at once
            self._wanted.pop(role.name, None)
            self._untold[role, True] = None
        if self._closed:
            role.release()
            return
        self._wake()
        role._signal().then(partial(self._when_lost, role))  # noqa: SLF001 - a friend of the handle

    def _when_lost(self, role: R) -> None:
        # A release is no change. Looked at without the lock: whoever closes or drops this tracker
        # may hold it, and the garbage collector may drop it on this very thread.
        if self._closed or role._released == RELEASED:  # noqa: SLF001 - a friend of the handle
            return
        with self._lock:
            if self._closed:
                return
            self._lost[role.name] = role
            self.held.pop(role.name, None)
            is_followed = self._is_followed
            if is_followed or not self._forget_untold(role):
                self._untold[role, False] = None
        if self._closed:
            role.release()
            return
        self._wake()
        if not is_followed:
            self.done(role)


class BaseRoleSet(Generic[R]):
    """What a `RoleSet` is on both faces; its `with` makes the tracker, and closes it."""

    def __init__(self) -> None:
        self._tracker: Tracker[R] | None = None
        self._engine: Engine | None = None

    @property
    def held(self) -> Mapping[str, R]:
        """Return the roles held now, by name."""
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
