"""Spell the names of settings in messages.

They are written as in code, or as a command's options.

Settings are named where something is wrong with them, far below the command line. The user of a
command knows no `ca=`, but an option `--ca`. So messages ask here for the name.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Of the whole process and not of a thread: a command's requests run on several threads.
_options: dict[str, str] = {}


def setting(name: str) -> str:
    """Return a setting's name for a message.

    Args:
        name: as in code: `ca`, or `ca=` where the caller is to pass it.
    """
    return _options.get(name.removesuffix("="), name)


@contextlib.contextmanager
def spelled(options: Mapping[str, str]) -> Iterator[None]:
    """Name settings by the options of a command while the body runs."""
    _options.update(options)
    try:
        yield
    finally:
        for name in options:
            _options.pop(name, None)
