"""Run coroutines on an event loop whose time jumps.

The time jumps to the next due call. The coroutines may wait for nothing outside of the loop.
"""

import asyncio
import functools
from asyncio import sleep as pass_time

__all__ = ["JumpingLoop", "jumping", "pass_time"]


class JumpingLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still while a task can run."""

    def __init__(self):
        super().__init__()
        self._now = 1000.0
        selector = self._selector
        select = selector.select

        def jump(timeout=None):
            if timeout is None:
                raise AssertionError("everything waits for something that nobody will do")
            if timeout > 0:
                self._now += timeout
            return select(0)

        selector.select = jump

    def time(self):
        return self._now


def jumping(test):
    """Run an async test on a loop whose time jumps."""

    @functools.wraps(test)
    def run(*given, **named):
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test(*given, **named))

    return run
