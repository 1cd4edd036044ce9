"""Run timers in a time that jumps, also those of the leader."""

import asyncio
import contextlib
import itertools
import logging
import threading
from datetime import UTC, datetime, timedelta

import attrs
import pytest
from jumping import jumping, pass_time

from rink.errors import ClosedError
from rink.event_loops import wall_now
from rink.streams.consumer import app_tasks
from rink.streams.consumer.app_tasks import Task, run_tasks
from rink.testing import virtual_time


def task(function, every=None, cron=None, at_start=False, on_leader=False):
    return Task.of(function.__name__, function, every, cron, at_start, on_leader)


async def run_for(seconds, running):
    started = asyncio.create_task(running)
    await pass_time(seconds)
    started.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await started


@jumping
async def test_task_runs_at_once_and_then_every_so_often():
    times, loop = [], asyncio.get_running_loop()

    async def note():
        times.append(loop.time())

    began = loop.time()
    await run_for(35, task(note, every=10).run())
    assert times == [began, began + 10, began + 20, began + 30]


@jumping
async def test_run_that_takes_longer_delays_the_next_and_they_never_overlap():
    times, loop = [], asyncio.get_running_loop()

    async def slow():
        times.append(loop.time())
        await pass_time(15)
        times.append(loop.time())

    began = loop.time()
    await run_for(50, task(slow, every=10).run())
    assert [at - began for at in times] == [0, 15, 15, 30, 30, 45, 45]


@jumping
async def test_error_is_told_and_ends_only_that_run(caplog):
    runs = []

    async def fail():
        runs.append(1)
        raise ValueError("no")

    with caplog.at_level(logging.ERROR):
        await run_for(25, task(fail, every=10).run())
    assert len(runs) == 3
    assert "task 'fail' failed" in caplog.text


@jumping
async def test_timer_after_a_long_run_keeps_its_period_again():
    times, loop = [], asyncio.get_running_loop()

    async def slow_at_first():
        times.append(loop.time())
        await pass_time(0 if times[1:] else 25)

    began = loop.time()
    await run_for(60, task(slow_at_first, every=10).run())
    assert [at - began for at in times] == [0, 25, 35, 45, 55]


@jumping
async def test_run_cancelled_by_its_own_code_counts_as_an_error(caplog):
    runs = []

    async def cancelled():
        runs.append(1)
        raise asyncio.CancelledError

    with caplog.at_level(logging.ERROR):
        await run_for(25, task(cancelled, every=10).run())
    assert len(runs) == 3
    assert "task 'cancelled' failed" in caplog.text


@jumping
async def test_run_that_fails_by_a_task_group_is_an_error_like_any_other(caplog):
    """Fail in a task group.

    Before Python 3.13, the group may leave its own request to cancel in the task.
    """
    runs = []

    async def refuse():
        raise ValueError("no")

    async def share():
        runs.append(1)
        async with asyncio.TaskGroup() as shares:
            shares.create_task(refuse())

    with caplog.at_level(logging.ERROR):
        await run_for(25, task(share, every=10).run())
    assert len(runs) == 3
    assert "task 'share' failed" in caplog.text


@jumping
async def test_run_that_takes_its_end_for_an_error_of_its_own_is_the_last_one():
    runs = []

    async def swallows():
        runs.append(1)
        with contextlib.suppress(asyncio.CancelledError):
            await pass_time(5)

    running = asyncio.create_task(task(swallows, every=1).run())
    await pass_time(3)
    running.cancel()
    await asyncio.wait([running])
    assert running.cancelled()
    assert len(runs) == 1


def test_async_function_behind_a_plain_decorator_runs():
    runs = []

    async def note():
        runs.append(1)

    def decorated():
        return note()

    one = attrs.evolve(task(note, every=10), function=decorated)
    asyncio.run(one._call())
    assert runs == [1]


def test_plain_function_that_is_to_end_is_waited_for(caplog):
    """Wait for the thread of a task.

    A thread cannot be cancelled, so a role that is released before would be held twice.
    """
    begun, go, ended = threading.Event(), threading.Event(), []

    def slow():
        begun.set()
        go.wait(10)
        ended.append(1)

    async def main():
        running = asyncio.create_task(task(slow, every=10).run())
        await asyncio.to_thread(begun.wait, 10)
        for _ in range(3):
            running.cancel()
            await asyncio.wait([asyncio.create_task(asyncio.to_thread(lambda: None))])
            assert not running.done()
        go.set()
        await asyncio.wait([running])
        assert running.cancelled()

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())
    assert ended == [1]
    assert "waiting for its thread to end" in caplog.text


@pytest.mark.parametrize(("back", "twice"), [(0.3, 0), (3600.0, 2)])
@jumping
async def test_clock_that_is_set_back_a_little_comes_to_no_minute_twice(monkeypatch, back, twice):
    loop, runs = asyncio.get_running_loop(), []
    began = datetime(2026, 1, 1, tzinfo=UTC)
    start, is_back = loop.time(), []

    def wall():
        passed = loop.time() - start - (back if is_back else 0.0)
        return began + timedelta(seconds=passed)

    async def note():
        runs.append(wall())
        if len(runs) == 2:
            is_back.append(True)

    monkeypatch.setattr(app_tasks, "wall_now", wall)
    await run_for(60 * 4 + back, task(note, cron="* * * * *").run())
    minutes = [at.replace(second=0, microsecond=0) for at in runs]
    assert len(minutes) - len(set(minutes)) == twice
    assert all(at.second == 0 for at in runs)


def test_cron_task_in_virtual_time_runs_by_the_virtual_date():
    async def day():
        dates = []

        async def note():
            dates.append(wall_now())

        await run_for(86_400, task(note, cron="0 4 * * *").run())
        return dates

    with virtual_time() as time:
        [date] = time.run(day())
        assert (date.hour, date.minute, date.second) == (4, 0, 0)
        assert time.clock.wall() > date.isoformat()


class Group:
    """A group whose role `leader` is held for 10 s, and again 5 s later."""

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
async def test_leader_task_runs_whenever_the_role_is_held():
    times, loop = [], asyncio.get_running_loop()

    async def note():
        times.append(loop.time())

    began = loop.time()
    await run_for(60, run_tasks([task(note, every=4, on_leader=True)], Group(2)))
    assert [at - began for at in times] == [5, 9, 13, 20, 24, 28]


@jumping
async def test_task_at_start_runs_once():
    times, loop = [], asyncio.get_running_loop()

    async def note():
        times.append(loop.time())

    began = loop.time()
    await run_for(3600, task(note, at_start=True).run())
    assert times == [began]


@jumping
async def test_task_at_start_that_fails_is_tried_until_it_succeeds(caplog):
    runs = []

    async def fail_twice():
        runs.append(1)
        if len(runs) < 3:
            raise ValueError("not yet")

    with caplog.at_level(logging.ERROR):
        await run_for(3600, task(fail_twice, at_start=True).run())
    assert len(runs) == 3
    assert caplog.text.count("task 'fail_twice' failed; it runs again soon") == 2


@jumping
async def test_task_at_start_that_always_fails_is_tried_once_a_minute_at_least():
    times, loop = [], asyncio.get_running_loop()

    async def fail():
        times.append(loop.time())
        raise ValueError("no")

    began = loop.time()
    await run_for(3600, task(fail, at_start=True).run())
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert times[0] == began
    assert max(gaps) <= 60
    assert sum(gaps[-20:]) / 20 > 10


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@jumping
async def test_leaders_task_at_start_runs_once_on_each_new_leader():
    times, loop = [], asyncio.get_running_loop()

    async def note():
        times.append(loop.time())

    began = loop.time()
    await run_for(60, run_tasks([task(note, at_start=True, on_leader=True)], Group(2)))
    assert [at - began for at in times] == [5, 20]
