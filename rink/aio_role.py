"""Offer a role on the asyncio face, and cancel its body on a loss."""

from __future__ import annotations

import asyncio
from typing import Self

from rink._asyncio import in_loop, wait_in_loop
from rink.core.holds import Handle
from rink.engine.caller_context import caller
from rink.engine.signals import Signal
from rink.errors import UsageError
from rink.roles import BaseRole
from rink.with_statements import AsyncWith


class Lost:
    """Show whether a handle is lost: `is_set()`, `await wait(timeout)`."""

    __slots__ = ("_signal",)

    def __init__(self, signal: Signal) -> None:
        self._signal = signal

    def is_set(self) -> bool:
        """Return whether the role is lost, or the handle released."""
        return self._signal.is_set()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds, and return whether the handle is lost."""
        return await wait_in_loop(self._signal, timeout)


class Role(AsyncWith, BaseRole):
    """Hold a role on the asyncio face.

    `async with role:` releases the role at the end. It cancels its body when the role is lost, or
    when another task releases it. Only this cancellation ends at the `async with`. A body that
    releases its own role goes on.

    Before Python 3.13, a `TaskGroup` that fails in the body can leave its request to cancel behind,
    even if the body handles the error. If the role is lost later, the `async with` raises
    `CancelledError`, as `asyncio.timeout` does. Run such a group in a task of its own.
    """

    __slots__ = ("_body",)

    @property
    def lost(self) -> Lost:
        """Return the signal of the role's loss, or of this handle's release."""
        return Lost(self._signal())

    async def __aenter__(self) -> Self:
        self._enter()
        if hasattr(self, "_body"):
            raise UsageError(
                f"role {self.name!r}: this handle is in an `async with` already, and it can be "
                "used only once; take another handle of the role with get_role()"
            )
        self._body = _Body(self._signal(), self._handle)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        is_ours = self._body.end(kind)
        self.release()
        return is_ours


class _Body:
    """Cancel the task of a role's body on a loss, as asyncio.timeout would."""

    def __init__(self, signal: Signal, handle: Handle) -> None:
        task = asyncio.current_task()
        assert task is not None, "async with runs in a task"
        self._task = task
        self._cancelling = task.cancelling()
        self._has_cancelled = False
        self._has_ended = False
        self._signal = signal
        self._handle = handle
        self._cancel_soon = in_loop(self._cancel)
        signal.then(self._over)

    def _over(self) -> None:
        """Cancel the body, unless it released the role itself.

        If the role was lost before the body began, the signal calls this in the body's own task. So
        this checks for a loss first.
        """
        hold = self._handle.hold
        is_lost = hold is not None and hold.lost_at is not None
        if is_lost or caller() is not self._task:
            self._cancel_soon()

    def _cancel(self) -> None:
        if not self._has_ended:
            self._has_cancelled = True
            self._task.cancel("the role was lost or released")

    def end(self, kind: type[BaseException] | None) -> bool:
        """Stop watching the body.

        Returns:
            True if `kind` is the cancellation by this object, and no other.
        """
        self._has_ended = True
        self._signal.forget(self._over)
        if not self._has_cancelled:
            return False
        ours = self._task.uncancel() <= self._cancelling
        return ours and kind is not None and issubclass(kind, asyncio.CancelledError)
