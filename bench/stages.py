"""Note when a hand-over passes the library's internal functions.

The table of the hand-over's stages is made of it. Methods are wrapped in the processes of one short
run, whose figures are not used otherwise.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any

from child import now

DOORS = [
    # (note, module, class, method)
    ("step", "rink.engine.engine", "Engine", "_advance"),
    ("carried out", "rink.engine.engine", "Engine", "_carry_out"),
    ("asked", "rink.engine.requests", "Requests", "carry_out"),
    ("write", "rink.engine.requests", "Requests", "_write"),
    ("sent", "rink.etcd.channels", "CountedChannel", "unary"),
    ("delivered", "rink.engine.group_watch", "GroupWatch", "_hear"),
]

_passed: list[tuple[float, str, str]] = []


def install() -> None:
    for what, module, owner, method in DOORS:
        found = getattr(importlib.import_module(module), owner)
        setattr(found, method, _noted(what, getattr(found, method)))


def _noted(what: str, method: Any) -> Any:
    @functools.wraps(method)
    def noted(self: Any, *arguments: Any, **more: Any) -> Any:
        _passed.append((now(), what, _about(arguments)))
        try:
            return method(self, *arguments, **more)
        finally:
            _passed.append((now(), f"{what} done", ""))

    return noted


def _about(arguments: tuple[Any, ...]) -> str:
    """Describe the arguments of a call.

    These are the kinds of effects or events, the request's name, or the changes.
    """
    found = arguments[-1] if arguments and isinstance(arguments[0], int) else None
    if found is not None:  # what a watch delivers, with the number of its round
        return ", ".join(map(_change, getattr(found, "events", ())))
    first = arguments[0] if arguments else None
    if isinstance(first, list):
        return ", ".join(type(one).__name__ for one in first[:20])
    name = getattr(first, "name", None)
    return name if isinstance(name, str) else type(first).__name__


def _change(event: Any) -> str:
    what, name = event.kv.key.decode().split("/")[-2:]
    return f"{'deletion' if event.deleted else 'put'} of {what}/{name.lstrip('0')}"


def take() -> list[tuple[float, str, str]]:
    taken = _passed[:]
    del _passed[: len(taken)]
    return taken
