"""Refuse the syntax of the other face on a class of one face.

Python's own TypeError does not say what to write instead. These methods are hidden from type
checkers, which report such a mistake because the method is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from rink.errors import UsageError


class AsyncWith:
    """Refuse `with` on a class of asyncio."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __enter__(self) -> NoReturn:
            raise _of_asyncio(self, "with")

        def __exit__(self, *_: object) -> None:
            """Do nothing; `with` looks for this first."""


class AsyncFor(AsyncWith):
    """Refuse `with` and `for` on a class of asyncio."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __iter__(self) -> NoReturn:
            raise _of_asyncio(self, "for")


class PlainWith:
    """Refuse `async with` on a class that is used in `with`."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __aenter__(self) -> NoReturn:
            raise _plain(self, "with")

        def __aexit__(self, *_: object) -> None:
            """Do nothing; `async with` looks for this first."""


class PlainFor(PlainWith):
    """Refuse `async with` and `async for` on a class for `with` and `for`."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __aiter__(self) -> NoReturn:
            raise _plain(self, "for")


def _of_asyncio(value: object, keyword: str) -> UsageError:
    return UsageError(
        f"{value!r} is an asyncio class: write `async {keyword}`, not `{keyword}`. Without an "
        "event loop, use the class of the same name outside `aio`"
    )


def _plain(value: object, keyword: str) -> UsageError:
    return UsageError(
        f"{value!r} is not an asyncio class: write `{keyword}`, not `async {keyword}`. In an event "
        "loop, use the class of the same name in `aio`"
    )
