"""Call functions of users at the start and end of a worker or partition.

A hook at the end is called once, and only if the hooks at the start have succeeded. An `async def`
hook runs on the event loop, a plain one in a thread of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import attrs

from rink._cancel import ENDS_PROCESS, apart, is_ending, run_unless, running_task
from rink.callables import is_async, refuse_unrun
from rink.streams.consumer.error_log import ErrorLog
from rink.streams.consumer.user_thread import run_in_thread

log = logging.getLogger("rink.streams")

Hook = Callable[..., Any]

_INSTEAD = "write an `async def` or a plain function, one for the start and one for the end"

_MIN_TIMEOUT_S = 0.05
"""Shortest time for a hook at the end, even if nothing is left of `grace`."""


@attrs.frozen(kw_only=True)
class OwnedPartition:
    """Describe the partition for which a hook is called.

    Attributes:
        partition: the number of the partition, like `events.partition`.
        token: the fencing token of the grant, like `events.token`.
    """

    processor: str
    stream: str
    partition: int
    token: int


async def _call(hook: Hook, given_up: asyncio.Event, *args: Any) -> None:
    """Call a hook; if cancelled, wait for the end of its thread.

    The wait ends with `given_up`.
    """
    if is_async(hook):
        await hook(*args)
        return
    returned = await run_in_thread(partial(hook, *args), given_up)
    # A function under `contextlib.contextmanager` returns a wrapped generator that has not run.
    returned = getattr(returned, "gen", returned)
    refuse_unrun(f"hook {name_of(hook)!r}", returned, _INSTEAD)


def name_of(hook: Hook) -> str:
    """Return a hook's name, for people."""
    return getattr(hook, "__qualname__", repr(hook))


@attrs.define
class PartitionHooks:
    """Call the hooks of one processor in one partition, from take to close.

    `given_up` is set after the group was left. Then nobody waits for threads any more.
    """

    _on_start: Hook | None
    _on_stop: Hook | None
    _owned: OwnedPartition
    _role: str
    _given_up: asyncio.Event
    _error_log: ErrorLog
    _has_started: bool = attrs.field(init=False, default=False)

    async def start(self) -> bool:
        """Call the hook at the start; return whether it has succeeded."""
        if self._on_start is None:
            self._has_started = True
            return True
        this = running_task()
        try:
            await apart(partial(_call, self._on_start, self._given_up, self._owned))
        except BaseException as error:
            if isinstance(error, ENDS_PROCESS) or is_ending(this):
                raise
            name = name_of(self._on_start)
            then = (
                f"its hook {name!r} at the start is called again, and no event is processed "
                "before it succeeds"
            )
            self._error_log.log(error, self._role, then=then)
            return False
        self._has_started = True
        if is_ending(this):  # the hook caught the cancellation of this task
            raise asyncio.CancelledError
        return True

    async def stop(self, within: float) -> None:
        """Call the hook at the end, if the start has succeeded; log an error.

        Args:
            within: seconds until the hook is cancelled.
        """
        if self._on_stop is None or not self._has_started:
            return
        self._has_started = False
        limit = asyncio.timeout(max(within, _MIN_TIMEOUT_S))
        failure: BaseException | None = None
        this = running_task()
        try:
            async with limit:
                await apart(partial(_call, self._on_stop, self._given_up, self._owned))
        except BaseException as error:
            if _ends_task(error, this):
                raise
            failure = error
        if limit.expired():  # even if a thread has returned late
            what, failure = "did not return in time, and was cancelled", None
        elif failure is not None:
            what = "failed"
        else:
            return
        log.error(
            "hook %r of processor %r %s at the end of %s", name_of(self._on_stop),
            self._owned.processor, what, self._role, exc_info=failure,
        )  # fmt: skip


@contextlib.asynccontextmanager
async def around_worker(
    starts: Sequence[Hook], stops: Sequence[Hook], stop: asyncio.Event
) -> AsyncIterator[bool]:
    """Call the hooks of a worker around its work.

    The first error of `starts` ends the worker. All `stops` are called, in reverse order, even if
    one of them raises. When `stop` is set, a hook at the start is cancelled.

    Yields:
        True if the worker is to begin; False if `stop` was set meanwhile.
    """
    if starts and not await run_unless(stop, _call_in_order(starts)):
        yield False
        return
    try:
        yield True
    except BaseException:
        await _stop(stops)
        raise
    if errors := await _stop(stops):
        raise errors[0]


async def _call_in_order(hooks: Sequence[Hook]) -> None:
    this = running_task()
    for hook in hooks:
        try:
            await apart(partial(_call, hook, _nobody_waits()))
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and not is_ending(this):
                raise _cancelled(hook) from error
            error.add_note(f"raised by the hook {name_of(hook)!r}: the worker does not start")
            raise
        if is_ending(this):
            raise asyncio.CancelledError


async def _stop(hooks: Sequence[Hook]) -> list[BaseException]:
    errors: list[BaseException] = []
    this = running_task()
    for hook in reversed(hooks):
        try:
            await apart(partial(_call, hook, _nobody_waits()))
        except BaseException as error:
            if _ends_task(error, this):
                raise
            log.exception("hook %r failed at the end of the worker", name_of(hook))
            is_cancelled = isinstance(error, asyncio.CancelledError)
            errors.append(_cancelled(hook) if is_cancelled else error)
    return errors


def _cancelled(hook: Hook) -> TimeoutError:
    """Return an error for a cancellation that Rink did not cause."""
    return TimeoutError(
        f"hook {name_of(hook)!r} was cancelled, and not by Rink: a time limit has passed"
    )


def _ends_task(error: BaseException, this: asyncio.Task[Any]) -> bool:
    """Return whether an error orders the process to end."""
    if isinstance(error, ENDS_PROCESS):
        return True
    return isinstance(error, asyncio.CancelledError) and is_ending(this)


def _nobody_waits() -> asyncio.Event:
    """Return an event that is set as soon as the worker is cancelled."""
    given_up = asyncio.Event()
    given_up.set()
    return given_up
