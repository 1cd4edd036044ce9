"""Import the names of a package on first use.

An unused name costs no time, and needs no extra to be installed.

    if TYPE_CHECKING:  # what type checkers see
        from rink.guards.sql import SqlGuard
    else:
        __getattr__, __dir__ = named(__name__, {"SqlGuard": "rink.guards.sql"}, extra="sql")

In this form, type checkers find missing names. tests/test_imports.py checks that both parts have
the same names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from rink.pip_distribution import install_command


def named(
    package: str, homes: Mapping[str, str], extra: str | Mapping[str, str] = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package.

    Args:
        package: the package's `__name__`.
        homes: the module of each name, or MODULE:NAME if it has another name there. These modules
            are attributes, too, as if they had been imported. The home of a module of the package
            is its own full name.
        extra: Rink's extra that installs the needed libraries, for all names or by module.

    The returned `__getattr__` raises ModuleNotFoundError if an extra is missing, and names it.
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


def _imported(module: str, name: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if not extra or (error.name or "").startswith("rink"):
            raise
        missing = (error.name or "").partition(".")[0]
        text = f"{name} needs {missing}: {install_command(extra)}"
        raise ModuleNotFoundError(text, name=error.name) from error
