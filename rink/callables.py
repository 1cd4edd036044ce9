"""Check whether users' functions can be called with Rink's arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from rink.errors import ConfigError, UsageError

PLAIN = "write it as a plain function"
"""Advice if a function is async, and its result would not be awaited."""


def check_function(what: str, function: Callable[..., Any], *arguments: str) -> None:
    """Refuse a function that cannot be called, or would do nothing.

    Args:
        what: the kind of function, such as `processor` or `task`.
        function: the user's function.
        arguments: the names of the arguments that it is called with.

    Raises:
        ConfigError: it is not callable, is a generator, or takes other arguments.
    """
    name = _name(function)
    if not callable(function):
        raise ConfigError(f"{what} {name} is not callable")
    if any(map(_yields, _called(function))):
        raise ConfigError(
            f"{what} {name!r} is a generator, and a call runs none of it: write it without `yield`"
        )
    try:
        # Check the wrapper itself. A wrapped function may take more, which the wrapper adds.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # some C functions have no signature
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        called = ", ".join(arguments)
        raise ConfigError(
            f"{what} {name!r} takes {signature} and is called as ({called}): {error}"
        ) from error


def check_plain(
    what: str, function: Callable[..., Any], *arguments: str, instead: str = PLAIN
) -> None:
    """Refuse an async function, since its result would not be awaited.

    This also refuses all that `check_function` refuses. `instead` is advice for the message.
    """
    check_function(what, function, *arguments)
    if is_async(function):
        raise ConfigError(
            f"{what} {_name(function)!r} is async, and it is called without `await`, so none of it "
            f"would run: {instead}"
        )


def check_callback(setting: str, callback: Callable[..., Any] | None, *arguments: str) -> None:
    """Refuse a callback that cannot be called, or would do nothing."""
    if callback is not None:
        instead = "give a plain function; loop.call_soon_threadsafe() in it reaches an event loop"
        check_plain(setting, callback, *arguments, instead=instead)


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call of the function must be awaited.

    An object with an `async def __call__` counts as a function.
    """
    return any(map(inspect.iscoroutinefunction, _called(function)))


def refuse_unrun(what: str, returned: object, instead: str) -> None:
    """Raise a UsageError if a function returned a coroutine or generator."""
    if inspect.iscoroutine(returned):
        returned.close()  # otherwise Python warns that it was never awaited
    tests = (inspect.isgenerator, inspect.isasyncgen, inspect.isawaitable)
    if any(test(returned) for test in tests):
        raise UsageError(
            f"{what} is a plain function and returned {returned!r}, which nobody runs: {instead}"
        )


def _name(function: object) -> str:
    return getattr(function, "__qualname__", repr(function))


def _yields(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _called(function: Callable[..., Any]) -> tuple[object, object]:
    """Return the function without partials, and its `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    return function, getattr(function, "__call__", None)  # noqa: B004 - to look into it
