"""Share with tests of streams what tests on a Redis in memory have, too."""

import asyncio
import functools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "streams"))

from steps_support import Steps, hashes, output, place_of, stepping

__all__ = ["Steps", "driven", "hashes", "output", "place_of", "stepping"]


def driven(test):
    """Run an async test in an event loop of its own."""

    @functools.wraps(test)
    def run(*given, **named):
        asyncio.run(test(*given, **named))

    return run
