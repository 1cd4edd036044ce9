"""Names of a package that are imported once they are asked for.

A name that is not used costs no time, and needs no extra.

    if TYPE_CHECKING:  # what type checkers see
        from rink.guards.sql import SqlGuard
    else:
        __getattr__, __dir__ = named(__name__, {"SqlGuard": "rink.guards.sql"}, extra="sql")

In this form type checkers refuse a name that there is not. tests/test_imports.py sees that both
parts say the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from rink.distribution import install_command


def named(
    package: str, homes: Mapping[str, str], extra: str | Mapping[str, str] = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Args:
        package: its `__name__`.
        homes: for each name the module that has it, or MODULE:NAME where it has another name
            there. These modules are attributes, too, as if they had been imported. The home of a
            module of the package is its own full name.
        extra: of ours, which brings what they need: for all, or by module.

    Raises:
        ModuleNotFoundError: (what is returned) what an extra brings is not installed; the message
            says which.
    """
    modules = {home.partition(":")[0] for home in homes.values()}

    def get(name: str) -> Any:
        whole = f"{package}.{name}"
        if whole in modules:
            return import_module(whole)
        if name in homes:
            module, _, there = homes[name].partition(":")
            needs = extra if isinstance(extra, str) else extra.get(module, "")
            return getattr(_imported(module, whole, needs), there or name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return get, names


def _imported(module: str, asked: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not extra or (error.name or "").startswith("rink"):
            raise
        missing = (error.name or "").partition(".")[0]
        told = f"{asked} needs {missing}: {install_command(extra)}"
        raise ModuleNotFoundError(told, name=error.name) from error
