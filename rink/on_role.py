"""Run a user's function whenever a role is held, on a thread or in a task."""

from __future__ import annotations

import abc
import asyncio
import inspect
import logging
import threading
from collections.abc import Callable
from typing import Any

from rink.callables import check_function, check_plain, is_async, refuse_unrun
from rink.core.retry_delay import backoff
from rink.engine.caller_context import made_at
from rink.errors import ClosedError, ConfigError, RinkError
from rink.event_loops import asyncio_loop

log = logging.getLogger("rink")

JOIN_TIMEOUT_S = 1.0
"""Longest wait of a leave for each function to end, after all roles were released."""

MAX_BACKOFF_S = 30.0
"""Longest pause before a function that keeps raising is called again."""

RAISED_TEXT = "on_role(%r): %r raised"
ENDED_TEXT = "on_role(%r) ends, and its function is not called again"

INSTEAD = "write it as a plain function, or use rink.aio"


class Supervisor(abc.ABC):
    """Run one function: wait for its role, call it, and repeat.

    The function is called again after a loss or an error. It has a handle of its own. If it
    releases that handle, or returns, the role is still kept until it is lost. So the function is
    called again with the next grant, and not in a tight loop.
    """

    def __init__(self, rink: Any, name: str, function: Callable[[Any], Any]) -> None:
        self._check(f"on_role({name!r})", function)
        self._rink = rink
        self._name = name
        self._function = function
        self._made_at = made_at()  # the place of the decorator, for messages about its handles

    def _second_handle(self, kept: Any) -> Any:
        """Return the function's own handle of a kept role, or None after a loss."""
        role = self._rink.get_role(self._name)
        for handle in filter(None, (kept, role)):
            handle._handle.made_at = self._made_at  # noqa: SLF001 - of the same package
        return role

    @staticmethod
    @abc.abstractmethod
    def _check(what: str, function: Callable[[Any], Any]) -> None:
        """Refuse a function that cannot be run this way, with a ConfigError."""

    @abc.abstractmethod
    def start(self) -> None:
        """Start once: both the decorator and the join may call this."""

    def _pause(self, failures: int) -> float | None:
        """Return the pause after failures in a row, or None to await a loss."""
        name = f"{self._rink.name}/{self._name}"
        return backoff(failures, name, MAX_BACKOFF_S) if failures else None

    def _log_still_running(self) -> None:
        text = "on_role(%r) still runs after the group was left; its function should return on loss"
        log.error(text, self._name, extra=self._about())

    def _about(self, role: Any = None) -> dict[str, Any]:
        """Return the `extra` of a log line about the function or its role."""
        about = {"group": self._rink.group, "member": self._rink.name, "role": self._name}
        grant = {} if role is None else {"token": role.token, "version": role.version_number}
        return about | grant


class ThreadSupervisor(Supervisor):
    """Run the function on a thread of its own."""

    def __init__(self, rink: Any, name: str, function: Callable[[Any], Any]) -> None:
        super().__init__(rink, name, function)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @staticmethod
    def _check(what: str, function: Callable[[Any], Any]) -> None:
        check_plain(what, function, "role", instead=INSTEAD)

    def start(self) -> None:
        """Start the thread, once."""
        with self._lock:
            if self._thread is None:
                name = f"rink-role-{self._name}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                thread.start()
                self._thread = thread

    def is_here(self) -> bool:
        """Return whether the caller's thread is the function's."""
        return threading.current_thread() is self._thread

    def join(self) -> None:
        """Wait for the thread to end, at most `JOIN_TIMEOUT_S`.

        All roles have been released or given up, so it ends soon or not at all.
        """
        if self._thread is not None:
            self._thread.join(JOIN_TIMEOUT_S)
            if self._thread.is_alive():
                self._log_still_running()

    def _run(self) -> None:
        failures = 0
        try:
            while True:
                with self._rink.await_role(self._name) as kept:
                    if (role := self._second_handle(kept)) is None:
                        continue
                    with role:
                        failures = 0 if self._call(role) else failures + 1
                        kept.lost.wait(self._pause(failures))
        except ClosedError:
            pass
        except RinkError:
            log.exception(ENDED_TEXT, self._name, extra=self._about())

    def _call(self, role: Any) -> bool:
        try:
            returned = self._function(role)
            refuse_unrun(f"on_role({self._name!r})", returned, INSTEAD)
        except BaseException:  # sys.exit() here must not leave the role without its function
            log.exception(RAISED_TEXT, self._name, self._function, extra=self._about(role))
            return False
        return True


class TaskSupervisor(Supervisor):
    """Run the coroutine function in a task of its own."""

    def __init__(self, rink: Any, name: str, function: Callable[[Any], Any]) -> None:
        super().__init__(rink, name, function)
        self._task: asyncio.Task[None] | None = None

    @staticmethod
    def _check(what: str, function: Callable[[Any], Any]) -> None:
        check_function(what, function, "role")
        if not is_async(inspect.unwrap(function)):
            raise ConfigError(
                f"{what} {function!r} is a plain function, which would block the event loop: write "
                "it with `async def`, in a decorator's wrapper as well"
            )

    def start(self) -> None:
        """Start the task, once, in the running loop."""
        if self._task is None:
            loop = asyncio_loop()
            self._task = loop.create_task(self._run(), name=f"rink-{self._name}")

    async def end(self) -> None:
        """Wait for the task to end, at most `JOIN_TIMEOUT_S`.

        All roles have been released or given up, so it ends soon or not at all.
        """
        if self._task is None or self._task is asyncio.current_task():
            return
        _, running = await asyncio.wait({self._task}, timeout=JOIN_TIMEOUT_S)
        if running:
            self._log_still_running()

    async def _run(self) -> None:
        failures = 0
        try:
            while True:
                async with self._rink.await_role(self._name) as kept:
                    if (role := self._second_handle(kept)) is None:
                        continue
                    try:
                        failures = 0 if await self._call(role) else failures + 1
                        await kept.lost.wait(self._pause(failures))
                    finally:
                        role.release()
        except ClosedError:
            pass
        except RinkError:
            log.exception(ENDED_TEXT, self._name, extra=self._about())

    async def _call(self, role: Any) -> bool:
        try:
            await self._function(role)
        except Exception:
            log.exception(RAISED_TEXT, self._name, self._function, extra=self._about(role))
            return False
        return True
