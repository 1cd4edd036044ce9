"""Timers, in a time that jumps: when they run, and on whose leadership."""

import asyncio
import contextlib
import logging

import pytest
from jumping import jumping, pass_time

from rink.errors import ClosedError
from rink.streams.tasks import Task, run_tasks


def task(function, every=None, cron=None, on_leader=False):
    return Task.of(function.__name__, function, every, cron, on_leader)


async def run_for(seconds, running):
    started = asyncio.create_task(running)
    await pass_time(seconds)
    started.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await started


@jumping
async def test_a_task_runs_at_once_and_then_every_so_often():
    times, loop = [], asyncio.get_running_loop()

    async def note():
        times.append(loop.time())

    began = loop.time()
    await run_for(35, task(note, every=10).run())
    assert times == [began, began + 10, began + 20, began + 30]


@jumping
async def test_a_run_that_takes_longer_delays_the_next_and_they_never_overlap():
    times, loop = [], asyncio.get_running_loop()

    async def slow():
        times.append(loop.time())
        await pass_time(15)
        times.append(loop.time())

    began = loop.time()
    await run_for(50, task(slow, every=10).run())
    assert [at - began for at in times] == [0, 15, 15, 30, 30, 45, 45]


@jumping
async def test_an_error_is_told_and_ends_only_that_run(caplog):
    runs = []

    async def fail():
        runs.append(1)
        raise ValueError("no")

    with caplog.at_level(logging.ERROR):
        await run_for(25, task(fail, every=10).run())
    assert len(runs) == 3
    assert "task 'fail' failed" in caplog.text


class Group:
    """A group whose role `leader` is here for ten seconds, and again after five."""

    def __init__(self, times):
        self.left = times

    @contextlib.asynccontextmanager
    async def await_role(self, name):
        assert name == "leader"
        if self.left == 0:
            raise ClosedError("left")
        self.left -= 1
        await pass_time(5)
        body = asyncio.current_task()
        asyncio.get_running_loop().call_later(10, body.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            yield


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@jumping
async def test_a_leaders_task_runs_while_the_role_is_here_and_again_when_it_comes_back():
    times, loop = [], asyncio.get_running_loop()

    async def note():
        times.append(loop.time())

    began = loop.time()
    await run_for(60, run_tasks([task(note, every=4, on_leader=True)], Group(2)))
    assert [at - began for at in times] == [5, 9, 13, 20, 24, 28]
