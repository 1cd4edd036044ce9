"""Implement the return value of asyncio's `await_role()`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine, Generator
from typing import TYPE_CHECKING, Any, NoReturn

from rink.aio_role import Role
from rink.core.holds import CodePlace, Handle, made_by
from rink.errors import UsageError


class AwaitedRole:
    """Wait for a role when awaited, or when used in `async with`."""

    def __init__(
        self, name: str, acquire: Callable[[], Coroutine[Any, Any, Role]], place: CodePlace
    ) -> None:
        self._name = name
        self._acquire = acquire
        self._place = place
        self._is_entered = False
        self._role: Role | None = None
        self._is_used = False  # awaited, or refused with an error

    def __await__(self) -> Generator[Any, None, Role]:
        self._is_used = True
        return self._acquire().__await__()

    async def __aenter__(self) -> Role:
        if self._is_entered:
            raise UsageError(
                f"role {self._name!r}: an await_role() can be entered once; call await_role() again"
            )
        self._is_entered = True
        self._role = await self
        return await self._role.__aenter__()

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        assert self._role is not None
        return await self._role.__aexit__(kind)

    # ── a missing `await` ────────────────────────────────────────────────────────────────────

    if not TYPE_CHECKING:  # type checkers find these mistakes by themselves

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_") or not hasattr(Role, name):
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            raise self._refusal(f"has no `.{name}` before it is awaited")

        def __bool__(self) -> NoReturn:
            raise self._refusal("has no truth value before it is awaited")

        def __enter__(self) -> NoReturn:
            raise self._refusal("cannot be used in `with`")

        def __exit__(self, *_: object) -> None:
            """Do nothing; `with` looks for this first."""

    def _refusal(self, what: str) -> UsageError:
        self._is_used = True  # after this error, a warning is not needed
        return UsageError(f"role {self._name!r}: await_role() of rink.aio {what}: {self._advice}")

    @property
    def _advice(self) -> str:
        call = f"r.await_role({self._name!r})"
        return f"write `role = await {call}`, or `async with {call} as role`"

    def __del__(self) -> None:
        """Warn at the line that called await_role(), as for a coroutine."""
        if vars(self).get("_is_used", True):  # unset if a signal handler raised in __init__
            return
        file, _, line = made_by(Handle(self._name, made_at=self._place)).rpartition(":")
        warnings.warn_explicit(
            f"role {self._name!r}: await_role() was never awaited, so the role was not waited for: "
            f"{self._advice}",
            RuntimeWarning,
            file,
            int(line),
        )
