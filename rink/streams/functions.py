"""The functions of users: whether one can be called as it will be."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rink.errors import ConfigError, UsageError


def check_function(what: str, function: Callable[..., Any], *given: str) -> None:
    """Refuse what would do nothing when it is called, or cannot be.

    Args:
        what: it is declared as: `processor` or `task`.
        function: the user's.
        given: the names of what it is called with.

    Raises:
        ConfigError: it is no function, one with a `yield`, or takes something else.
    """
    name = getattr(function, "__qualname__", repr(function))
    if not callable(function):
        raise ConfigError(f"{what} {name} is no function")
    if any(map(_yields, _called(function))):
        raise ConfigError(
            f"{what} {name!r} has a yield in it: a call would run none of it; have it return nothing"
        )
    try:
        # As it is called: what a decorator has wrapped may take more, which the wrapper gives it.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # of some functions in C there is none
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        raise ConfigError(
            f"{what} {name!r} takes {signature} and is called as ({', '.join(given)}): {error}"
        ) from error


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call of it is to be awaited.

    An object with an `async def __call__` counts as a function.
    """
    return any(map(inspect.iscoroutinefunction, _called(function)))


def _yields(function: object) -> bool:
    return inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)


def _called(function: Callable[..., Any]) -> tuple[object, object]:
    """Return what runs when it is called: itself, or `__call__`."""
    return function, getattr(function, "__call__", None)  # noqa: B004 - to look into it


def refuse_unrun(returned: object) -> None:
    """Raise a UsageError where a plain function has returned something that was to be run."""
    if inspect.iscoroutine(returned):
        returned.close()  # or Python warns that nobody has awaited it
    if (
        inspect.isgenerator(returned)
        or inspect.isasyncgen(returned)
        or inspect.isawaitable(returned)
    ):
        raise UsageError(
            f"the processor is a plain function and returned {returned!r}, which nobody runs: have it be async "
            "and await that; so must a decorator's wrapper around an async function"
        )
