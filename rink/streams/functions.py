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
    if not callable(function):
        raise ConfigError(f"{what} {function!r} is no function")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(
            f"{what} {function.__qualname__!r} has a yield in it: a call would run none of it; "
            "have it return nothing"
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of some functions in C there is none
        return
    try:
        signature.bind(*given)
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        raise ConfigError(
            f"{what} {name!r} takes {signature} and is called as ({', '.join(given)}): {error}"
        ) from error


def refuse_unrun(returned: object) -> None:
    """Raise a UsageError where a plain function has returned something that was to be run."""
    if inspect.isgenerator(returned) or inspect.iscoroutine(returned):
        returned.close()
        raise UsageError(
            f"the processor is a plain function and returned {returned!r}, which nobody runs: if a decorator "
            "has wrapped an async function, have the wrapper be async, too"
        )
