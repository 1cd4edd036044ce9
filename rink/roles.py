"""Offer a handle of a held role, under which user code works."""

from __future__ import annotations

import warnings
from typing import Generic, NoReturn, Self, TypeVar

import attrs

from rink.core.holds import Handle, Hold
from rink.engine.engine import Engine
from rink.engine.signals import Signal
from rink.errors import ForkedProcessError, RoleLost, UsageError
from rink.with_statements import PlainWith

RELEASED = "released here"
"""The reason in a handle that was released while its role was held."""


class BaseRole:
    """Give user code a handle of a role, on both faces. Safe from any thread.

    Several handles of one role in one member share the role. The member holds the role until the
    last handle is released. The garbage collector releases a handle that nobody keeps, with a
    warning. Keep it in a `with`, or use `can_take(name)` for a mere check.
    """

    __slots__ = ("__weakref__", "_engine", "_handle", "_is_done", "_released")

    def __init__(self, engine: Engine, handle: Handle) -> None:
        self._engine = engine
        self._handle = handle
        # Why the handle is over; "" until it is released. With a reason, is_held is False.
        self._released = ""
        self._is_done = False  # True if the garbage collector has nothing left to do

    @property
    def name(self) -> str:
        """Return the role's name."""
        return self._handle.role

    @property
    def _hold(self) -> Hold:
        hold = self._handle.hold
        assert hold is not None, "users are given granted roles only"
        return hold

    @property
    def token(self) -> int:
        """Return the fencing token.

        It is greater than the token of every earlier holder of this role.
        """
        return self._hold.token

    @property
    def rank(self) -> int:
        """Return the rank that the role was granted under."""
        return self._hold.share.rank

    @property
    def version_number(self) -> int:
        """Return the number of the version that the role was granted under."""
        return self._hold.version

    @property
    def is_held(self) -> bool:
        """Return whether the role is held now, by the current deadline."""
        self._refuse_fork()
        if self._released or self._hold.lost_at is not None:
            return False
        return self._engine.clock.now() < self._engine.table.deadline

    def raise_if_lost(self) -> None:
        """Raise RoleLost unless the role is held at this moment."""
        if not self.is_held:
            why = self._released or self._hold.lost_because
            why = why or "the session's deadline has passed"
            raise RoleLost(
                f"role {self.name!r} (token {self.token}) is not held any more: {why}",
                role=self.name,
                group=self._engine.group,
                member=self._engine.node.name,
                token=self.token,
            )

    def release(self) -> None:
        """Release this handle.

        Its `lost` is set first, so code that watches it stops before another holder may begin. A
        second release does nothing, and so does a release in a forked child.
        """
        engine = self._engine
        if self._is_done or engine.forked:
            return
        if engine.is_interrupted():
            self._drop()
            return
        # A signal handler may raise between any two of these steps. Then __del__ does the rest.
        self._end()
        engine.release(self._handle)
        self._is_done = True

    def _enter(self) -> None:
        """Refuse a `with` on a released handle.

        Its body would run beside the next holder. A handle that was just lost may be entered, since
        its body sees that `lost` is set.
        """
        self._refuse_fork()
        self._engine.refuse_interrupted("with role")
        if self._released:
            raise UsageError(
                f"role {self.name!r} was released before this `with`: a handle is used once, so "
                "take the role anew with await_role() or get_role()"
            )

    def _drop(self) -> None:
        """Release by message, since finalizers and signal handlers may not lock."""
        if not self._is_done and not self._engine.forked:
            try:
                self._end()
            finally:  # also if a signal handler raises, since a finalizer runs only once
                self._engine.drop(self._handle)
                self._is_done = True

    def _end(self) -> None:
        """Set `lost` before the engine releases the handle; keep the reason."""
        handle = self._handle
        hold = handle.hold
        self._released = self._released or (hold and hold.lost_because) or RELEASED
        if handle.lost is not None:
            handle.lost.set()

    def _signal(self) -> Signal:
        """Return the signal that is set when this handle is lost or released.

        It is made on first use. Invariant: this publishes the signal before it reads whether the
        role is lost or released. Code that marks a loss or a release does so before it reads the
        signal. So at least one of the two sets it.
        """
        self._refuse_fork()
        self._engine.refuse_interrupted("role.lost")
        handle = self._handle
        with self._engine.lock:
            if handle.lost is None:
                handle.lost = Signal(self._engine.clock)
                if self._released or self._hold.lost_at is not None:
                    handle.lost.set()  # without callbacks yet, so nothing is called under the lock
            signal: Signal = handle.lost
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
            return  # released, or a signal handler raised in __init__
        is_forgotten = not self._released and self._handle.hold is not None
        self._drop()
        if is_forgotten:
            warn_unreleased(f"a handle of role {self.name!r}")


class _ReleaseWarning:
    once = False


def warn_unreleased(what: str) -> None:
    """Warn once per process that an object with held roles was dropped."""
    if not _ReleaseWarning.once:
        _ReleaseWarning.once = True
        warnings.warn(
            f"{what} was garbage-collected unreleased; it is released now. Keep it in a `with`, or "
            "use can_take(name) for a mere check",
            ResourceWarning,
            stacklevel=3,
        )


class Role(PlainWith, BaseRole):
    """Hold a role on the blocking face.

    As a context manager, it releases the role at its end.
    """

    __slots__ = ()

    @property
    def lost(self) -> Signal:
        """Return the signal of the role's loss, or of this handle's release.

        Use `lost.wait(timeout)` and `lost.is_set()`. Once set, it stays set.
        """
        return self._signal()

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


R_co = TypeVar("R_co", bound=BaseRole, covariant=True)


@attrs.frozen
class Change(Generic[R_co]):
    """Report one change of a `RoleSet`: a role was gained or lost."""

    role: R_co
    gained: bool

    @property
    def lost(self) -> bool:
        """Return whether the role was lost."""
        return not self.gained
