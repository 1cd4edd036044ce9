"""A role that is held: the handle that user code works under."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Generic, NoReturn, Self, TypeVar

import attrs

from rink.core.holds import Handle, Hold
from rink.engine.callers import caller
from rink.engine.engine import Engine
from rink.engine.signals import Signal
from rink.errors import ForkedProcessError, RoleLost, UsageError


class BaseRole:
    """What a handle is on both faces. Safe from any thread.

    Several handles of one role in one member share the role: it is let go when the last of them is
    released. A handle that is dropped unreleased is released by the garbage collector, with a
    warning: keep it in a `with`, or use `can_take(name)` for a bare check.
    """

    __slots__ = ("__weakref__", "_engine", "_handle", "_is_done", "_released")

    def __init__(self, engine: Engine, handle: Handle) -> None:
        self._engine = engine
        self._handle = handle
        self._released = False  # is_held is False from here
        self._is_done = False  # nothing is left for the garbage collector to do

    @property
    def name(self) -> str:
        """The role's name."""
        return self._handle.role

    @property
    def _hold(self) -> Hold:
        hold = self._handle.hold
        assert hold is not None, "users are given granted roles only"
        return hold

    @property
    def token(self) -> int:
        """The fencing token: greater than that of every earlier holder of this role."""
        return self._hold.token

    @property
    def rank(self) -> int:
        """The rank that the role was granted under."""
        return self._hold.share.rank

    @property
    def version_number(self) -> int:
        """The number of the version that the role was granted under."""
        return self._hold.version

    @property
    def is_held(self) -> bool:
        """Whether the role is held at this very moment; the deadline is checked now."""
        self._refuse_fork()
        if self._released or self._hold.lost_at is not None:
            return False
        return self._engine.clock.now() < self._engine.table.deadline

    def raise_if_lost(self) -> None:
        """Raise RoleLost unless the role is held at this very moment."""
        if not self.is_held:
            why = "released here" if self._released else self._hold.lost_because
            why = why or "the session's deadline has passed"
            raise RoleLost(
                f"role {self.name!r} (token {self.token}) is not held any more: {why}",
                role=self.name,
                group=self._engine.group,
                member=self._engine.node.name,
                token=self.token,
            )

    def release(self) -> None:
        """Let go of this handle; releasing twice does nothing, and so does a forked child."""
        engine = self._engine
        if self._is_done or engine.forked:
            return
        if engine.is_interrupted():
            self._drop()
            return
        # A signal handler may raise between any two of these: what is left, __del__ has done.
        self._released = True
        with engine.lock:
            must_tell = engine.table.release(self._handle)
        if must_tell:
            engine.nudge()
        self._is_done = True

    def _enter(self) -> None:
        """Begin the body of a `with`: leaving from inside it cannot wait for its end (R10)."""
        self._refuse_fork()
        self._engine.refuse_interrupted("with role")
        self._handle.inside = caller()

    def _drop(self) -> None:
        """Release by message, for finalizers and signal handlers: they may run under any lock."""
        if not self._is_done and not self._engine.forked:
            self._released = self._is_done = True
            self._engine.drop(self._handle)

    def _signal(self) -> Signal:
        """The signal that all handles of this grant share, made when it is first asked for."""
        self._refuse_fork()
        self._engine.refuse_interrupted("role.lost")
        hold = self._hold
        with self._engine.lock:
            if hold.signal is None:
                hold.signal = Signal(self._engine.clock)
                if hold.lost_at is not None:  # told before, to nobody; a set one has no callbacks
                    hold.signal.set()
            signal: Signal = hold.signal
        return signal

    def _refuse_fork(self) -> None:
        if self._engine.forked:
            raise ForkedProcessError(
                f"role {self.name!r} belongs to the parent process; join in this process instead"
            )

    def __repr__(self) -> str:
        if self._handle.hold is None:
            return f"<{type(self).__name__} {self.name!r} waits>"
        state = "released" if self._released else "lost" if self._hold.lost_at else "held"
        return f"<{type(self).__name__} {self.name!r} token={self.token} {state}>"

    def __reduce__(self) -> NoReturn:
        raise UsageError(f"role {self.name!r} cannot be pickled: send its name and token instead")

    def __del__(self) -> None:
        if getattr(self, "_is_done", True) or self._engine.forked:
            return  # released; or never wholly made, because a signal handler raised
        is_forgotten = not self._released and self._handle.hold is not None
        self._drop()
        if is_forgotten:
            warn_unreleased(f"a handle of role {self.name!r}")


class _Warned:
    once = False


def warn_unreleased(what: str) -> None:
    """Warn once per process that something was dropped which holds roles."""
    if not _Warned.once:
        _Warned.once = True
        warnings.warn(
            f"{what} was garbage-collected unreleased; it is released now. Keep it in a `with`, or "
            "use can_take(name) for a bare check",
            ResourceWarning,
            stacklevel=3,
        )


class Role(BaseRole):
    """A held role on the blocking face: a context manager that releases at its end."""

    __slots__ = ()

    @property
    def lost(self) -> Signal:
        """Set when the role is lost: `lost.wait(timeout)`, `lost.is_set()`. Once lost, for ever."""
        return self._signal()

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


R_co = TypeVar("R_co", bound=BaseRole, covariant=True)


@attrs.frozen
class Change(Generic[R_co]):
    """One change of a `RoleSet`: a role, of that face, was gained, or lost."""

    role: R_co
    gained: bool

    @property
    def lost(self) -> bool:
        """Whether the role was lost."""
        return not self.gained
