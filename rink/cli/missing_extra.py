"""Explain a missing module of the extra `cli`.

This module imports neither click nor rich, so that it works without them.
"""

from __future__ import annotations

import sys

from rink.pip_distribution import install_command

NEEDED = {"click", "rich"}
"""The modules that the extra `cli` installs."""


def refuse_without_extra(error: ModuleNotFoundError) -> None:
    """Exit with status 2 if the extra `cli` would bring the missing module."""
    if (error.name or "").partition(".")[0] in NEEDED:
        needs = f"the command line needs {error.name}: {install_command('cli')}"
        print(f"rink: {needs}", file=sys.stderr)
        sys.exit(2)
