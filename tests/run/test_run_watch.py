"""Test how `rink run` watches its guard, on virtual time."""

from __future__ import annotations

import asyncio
import os
import types
from pathlib import Path

import pytest
from jumping import jumping

from rink.run import cgroup, command_guard, command_run, guard_link
from rink.run.command_run import CommandRun
from rink.run.guard_link import Guarded, KillTimes, Reaper


def open_files():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


class HangingGuard:
    """Do nothing, as a guard that hangs."""

    is_late = False

    def __init__(self, until):
        self.until = until
        self.ended = asyncio.get_running_loop().create_future()

    def tell(self, until):
        self.until = until


@pytest.fixture
def clock(monkeypatch):
    """Make guards and runs use the loop's time."""

    def clock():
        return round(asyncio.get_running_loop().time() * 1000)

    monkeypatch.setattr(command_run, "now_ms", clock)
    monkeypatch.setattr(command_guard, "now_ms", clock)
    return clock


@pytest.mark.parametrize("phase", range(0, 1000, 90))
@pytest.mark.parametrize("ttl", [2, 12, 20, 300])
def test_run_kills_beside_a_hung_guard_before_the_end(clock, ttl, phase):
    """Checks are up to a second apart, at any phase to the end."""

    @jumping
    async def watch():
        limits = KillTimes.of(ttl, max(0.5, ttl / 10), 10.0)
        hung = HangingGuard(clock() + 10_000 + phase)
        killed = []

        async def kill_all():
            killed.append(clock())
            hung.ended.set_result(9)

        host = types.SimpleNamespace(
            session=types.SimpleNamespace(ttl=ttl),
            reaper=types.SimpleNamespace(kill_all=kill_all),
            member=types.SimpleNamespace(lease_and_end=lambda: (0, 0)),
            limits=limits,
        )
        lost = asyncio.get_running_loop().create_future()
        await CommandRun(host, None)._watch(hung, lost)
        assert hung.until - limits.lead <= killed[0] < hung.until

    watch()


@jumping
async def test_end_is_not_told_to_the_next_owner_of_a_pipe():
    """The number of a dead guard's pipe is used again.

    The guard is dead, and its command takes a while to kill.
    """
    is_over = asyncio.Event()
    made = Guarded(types.SimpleNamespace(kill_all=is_over.wait), print)
    made._cgroup = command_guard.Cgroup("")
    made._is_started = True
    made._from, guard_out = os.pipe()
    guard_in, made._to = os.pipe()
    os.close(guard_in)
    os.close(guard_out)
    status = asyncio.get_running_loop().create_future()
    status.set_result(9)
    freed = {made._from, made._to}
    made._guard_ended(status)
    pipes = [os.pipe() for _ in range(2)]
    assert freed & {fd for pipe in pipes for fd in pipe}
    try:
        made.tell(7)
        made.signal(15)
        made.kill()
        for source, _ in pipes:
            os.set_blocking(source, False)
            with pytest.raises(BlockingIOError):
                os.read(source, 100)
    finally:
        for pipe in pipes:
            for fd in pipe:
                os.close(fd)
    is_over.set()
    assert await made.ended == guard_link.KILLED


def test_kill_looks_rarely_and_reports_what_does_not_end(clock, monkeypatch, caplog):
    looks = []

    def descendants(_):
        looks.append(clock())
        return [4, 5]

    @jumping
    async def kill():
        reaper = Reaper()
        monkeypatch.setattr(reaper, "reap", lambda: clock() < began + 130_000)
        began = clock()
        await reaper.kill_all()

    monkeypatch.setattr(command_guard, "become_subreaper", lambda: None)
    monkeypatch.setattr(command_guard, "descendants", descendants)
    monkeypatch.setattr(command_guard, "signal_all", lambda pids, _: pids[1:])
    monkeypatch.setattr(command_guard, "name_of", {4: "dd", 5: "sudo"}.get)
    kill()
    assert len(looks) < 500
    lines = [record.getMessage() for record in caplog.records]
    text = "the command was killed and has not ended. Left: 4 (dd), 5 (sudo, of another user)"
    assert lines == [text] * 3


def test_sweeps_stay_fast_while_processes_start_new_ones():
    sweeps = command_guard.Sweeps(0)
    for now in range(0, 5000, 5):
        sweeps.swept(now, [now], [])
        assert sweeps.pause_ms == command_guard.SWEEP_INTERVAL_MS
    sweeps.swept(5000, [4995], [])
    assert sweeps.pause_ms == command_guard.SLOW_SWEEP_INTERVAL_MS


def test_sweeps_name_some_of_many_processes():
    report = command_guard.Sweeps(0).swept(1000, [2**30 + number for number in range(12)], [])
    assert report.startswith(f"{2**30} (?), ")
    assert report.endswith(" and 2 more")


def test_guard_that_cannot_be_spawned_leaves_nothing(tmp_path, monkeypatch):
    group = tmp_path / "group"
    group.mkdir()
    monkeypatch.setattr(cgroup, "make", lambda _: str(group))

    def fail(*_, **__):
        raise OSError("no processes left")

    monkeypatch.setattr(os, "posix_spawn", fail)

    @jumping
    async def start():
        before = open_files()
        with pytest.raises(OSError, match="no processes left"):
            Guarded(None, print).start(
                ["true"], {}, until=1, limits=KillTimes.of(20, 2, 10), role="r", ignored=()
            )
        assert open_files() == before

    start()
    assert not group.exists()


def test_guard_lets_no_process_go_on_whose_number_is_free(monkeypatch):
    """The reaped process's number may be another program's by now."""
    names = ("until", "grace", "notice", "lead", "job")
    options = {"in": "0", "out": "0", "ignored": "", "file": "", "role": "'r'", "cgroup": ""}
    made = command_guard.CommandGuard(options | dict.fromkeys(names, "0"), ["true"])
    os.close(made._timer.fd)
    made._pid, made._status = 4, 0
    for module, name in ((os, "killpg"), (made._terminal, "give")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("a stranger's number was used"))
    made._resume_in_front(0)
