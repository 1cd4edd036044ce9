"""An event loop whose time jumps to what is due next, for coroutines that wait for nothing outside."""

import asyncio
import functools
from asyncio import sleep as pass_time

__all__ = ["JumpingLoop", "jumping", "pass_time"]


class JumpingLoop(asyncio.SelectorEventLoop):
    """Time stands still while something can run, and jumps when all wait."""

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
    """Run an async test in such a loop."""

    @functools.wraps(test)
    def run(*given, **named):
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test(*given, **named))

    return run
