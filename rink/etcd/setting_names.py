"""Spell the names of settings in messages.

They are spelled as in code, or as a command's options. Errors about settings are raised far below
the command line. The user of a command does not know `ca=`, but the option `--ca`. So messages take
the name from here.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Global and not by thread, since a command's requests run on several threads.
_options: dict[str, str] = {}


def setting(name: str) -> str:
    """Return the option for a name such as `ca` or `ca=`, or else the name."""
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
