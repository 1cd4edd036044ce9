"""Wait for many roles at once, without a thread for each, for `RoleSet`."""

from __future__ import annotations

import collections
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from rink.core.holds import Handle
from rink.engine.caller_context import made_at
from rink.engine.engine import Engine
from rink.engine.signals import Signal
from rink.errors import ForkedProcessError
from rink.roles import RELEASED, BaseRole, Change, warn_unreleased

R = TypeVar("R", bound=BaseRole)


class Tracker(Generic[R]):
    """Wait for roles, and again after each loss.

    Changes are kept until they are taken. If nobody iterates, a grant that is over before it was
    taken is dropped together with its loss. So the number of kept changes is bounded by the number
    of names. `wake` is called, mostly on the engine's thread, when there is a change to take, or
    after the last one.

    The tracker's lock guards the state that both the engine's thread and the user's thread change.
    It may be held while the engine's lock is taken, and never the other way round.

    Invariant: a grant and its loss are taken in this order, or both are dropped. A loss is taken
    without its grant only if the grant was taken before. It holds for two reasons. The loss of a
    role is registered only after its grant was added. And `_drop_undelivered` decides by one atomic
    step. If it removes the grant before `take` gets it, it also removes the loss. If `take` has the
    grant, the loss stays. While somebody iterates, no pair is dropped, because the iteration
    releases each lost role by `done`.

    Attributes:
        held: the roles held now, by name.
        is_over: True if no more changes will come.
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
        self._made_at = made_at()  # the place of all handles, mostly the `with` of a RoleSet
        self._role_class = role_class
        self._wake = wake
        self._names = dict.fromkeys(names)
        self._wanted: dict[str, R] = {}  # not granted yet
        self._lost: dict[str, R] = {}  # lost, and not done yet
        # Changes in order: a role with True for its grant, or with False for its loss.
        self._undelivered = collections.OrderedDict[tuple[R, bool], object]()
        self._lock = threading.Lock()
        self._closed = False

    def start(self) -> None:
        """Request every role."""
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
        """Set whether somebody iterates, and so calls `done` for each loss.

        Otherwise this releases lost roles, also after a `break` or an error.
        """
        if self._engine.forked:
            return
        with self._lock:
            self._is_followed = iterates
            lost = [] if iterates else list(self._lost.values())
            for role in lost:
                self._drop_undelivered(role)
        for role in lost:
            self.done(role)

    def take(self) -> Change[R] | None:
        """Return the next change, oldest first, or None.

        This must not take the lock. A signal handler may interrupt it and leave the group. The
        leave waits for the engine, which takes the lock for each loss.
        """
        try:
            (role, gained), _ = self._undelivered.popitem(last=False)
        except KeyError:
            return None
        return Change(role, gained)

    def _drop_undelivered(self, role: R) -> bool:
        """Drop an undelivered grant together with its loss.

        Return whether a grant was dropped. The role is released at once, and soon another member's.
        So no code may begin to work under it.
        """
        if self._undelivered.pop((role, True), self) is self:
            return False
        self._undelivered.pop((role, False), None)
        return True

    def _drop_undelivered_grants(self) -> None:
        """Drop the undelivered grants of all roles, with their losses."""
        changes = list(iter(self.take, None))
        dropped = {change.role for change in changes if change.gained}
        for change in changes:
            if change.role not in dropped:
                self._undelivered[change.role, change.gained] = None

    def done(self, role: BaseRole) -> None:
        """Release a lost role, and request it again, unless this was done."""
        with self._lock:
            if self._closed or self._lost.get(role.name) is not role:
                return
            del self._lost[role.name]
            role.release()
            if self._engine.node.living.is_ending:
                return  # no new requests: a member with thousands of roles leaves twice as fast
            self._want([role.name])
        self._engine.nudge()

    def close(self) -> None:
        """Release all roles, and withdraw all requests.

        In a forked child this does nothing.
        """
        if self._engine.forked:
            return
        try:
            with self._lock:
                self._closed = True
                self._drop_undelivered_grants()
            for role in self._roles():
                role.release()
            self._engine.left.forget(self._end)
            self._forget()
        finally:
            self._end()

    def drop(self) -> None:
        """Close an unclosed tracker from a finalizer, without taking a lock.

        Its handles are released by message. The engine's thread may be moving a role from one dict
        to another at this time. It checks `_closed` again after that, and releases the role.
        """
        if self._engine.forked:
            return
        self._closed = True
        roles = self._roles()
        for role in roles:
            role._drop()  # noqa: SLF001 - of the same package
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
            return  # the group was left, or the role cannot be granted
        with self._lock:
            if self._closed:
                return  # close() has released it
            self.held[role.name] = role  # before the change: its receiver may read `held` at once
            self._wanted.pop(role.name, None)
            self._undelivered[role, True] = None
        if self._closed:
            role.release()
            return
        self._wake()
        role._signal().then(partial(self._when_lost, role))  # noqa: SLF001 - of the same package

    def _when_lost(self, role: R) -> None:
        # A release is not a change. This check does not take the lock: close() may hold it, and the
        # garbage collector may drop the tracker on this very thread.
        if self._closed or role._released == RELEASED:  # noqa: SLF001 - of the same package
            return
        with self._lock:
            if self._closed:
                return
            self._lost[role.name] = role
            self.held.pop(role.name, None)
            is_followed = self._is_followed
            if is_followed or not self._drop_undelivered(role):
                self._undelivered[role, False] = None
        if self._closed:
            role.release()
            return
        self._wake()
        if not is_followed:
            self.done(role)


class BaseRoleSet(Generic[R]):
    """Implement the parts of a `RoleSet` that both faces share."""

    def __init__(self, rink: Any, names: list[str]) -> None:
        self._rink = rink
        self._names = names
        self._tracker: Tracker[R] | None = None  # made by the `with`
        self._engine: Engine | None = None

    def _begin(self, wake: Callable[[], None]) -> None:
        """Request every role; `wake` is the tracker's."""
        engine = self._engine = self._rink._engine  # noqa: SLF001 - a part of the same face
        role_class = self._rink._role_class  # noqa: SLF001 - as above
        self._tracker = Tracker(engine, role_class, self._names, wake)
        try:
            self._tracker.start()
        except BaseException:  # Ctrl-C: withdraw all requests
            self._tracker.close()
            raise

    def _close(self) -> None:
        if self._tracker is not None:
            self._tracker.close()

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
        tracker = getattr(self, "_tracker", None)  # unset if a signal handler raised in __init__
        if tracker is not None:
            tracker.drop()
