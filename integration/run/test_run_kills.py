"""Test that the command is dead before another host may get its role.

This includes all processes that the command started. Some tests repeat a bug of another program
that locks and runs a command.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from processes import is_alive, wait_stopped
from run_support import MAX_LEAD_MS, SHORT_TTL, boot_ms, wait_for

from rink.etcd.client import Client

pytestmark = pytest.mark.waits


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP])
def test_signal_to_run_leaves_no_orphan(runs, beats, number):
    """Consul's lock left orphans on such signals.

    It left the grandchild of a shell (#2022), and orphans after QUIT (#1210) and HUP (#2489).
    """
    shell = '"$@" & exec 1>&-; wait'
    run = runs("--grace", "1", "--", "sh", "-c", shell, "sh", *beats.command("orphan"))
    beats.wait("child")
    beats.wait("orphan")
    assert run.ends(number) == -number
    beats.assert_over_before(boot_ms() + 1)
    assert run.output == ""


def test_end_of_the_command_kills_what_it_left_in_another_session(runs, beats):
    """The command ends by itself, and its exit code is kept."""
    path = str(beats.path)
    shell = '"$@" & until grep -q orphan "$0"; do :; done; exit 5'
    run = runs("--grace", "0.3", "--", "sh", "-c", shell, path, *beats.command("orphan", "deaf"))
    assert run.ends() == 5
    beats.assert_over_before(boot_ms() + 1)


def test_processes_that_fork_and_end_all_the_time_are_killed(runs, beats):
    """A read of `/proc` may miss them, but `waitpid` without a child does not."""
    path = str(beats.path)
    shell = '"$@" & until [ "$(grep -c child "$0")" -gt 3 ]; do :; done; exit 5'
    run = runs("--grace", "0.3", "--", "sh", "-c", shell, path, *beats.command("chain", "deaf"))
    assert run.ends() == 5
    assert len({beat.pid for beat in beats.all()}) > 3
    beats.assert_over_before(boot_ms() + 1)


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP])
def test_run_killed_or_stopped_kills_before_the_end_told(runs, beats, fate):
    """The guard knows the time, and needs nothing of `rink run`."""
    run = runs("--", *beats.command("orphan", "deaf"), ttl=SHORT_TTL)
    beats.wait("orphan")
    beats.wait("child")
    run.send(fate)
    if fate == signal.SIGSTOP:
        wait_stopped(run.pid)
    alive_at = beats.wait_over()
    until = max(beat.until for beat in beats.all())
    beats.assert_over_before(until, alive_at)
    run.send(signal.SIGCONT)


def test_command_runs_on_beyond_the_first_end_told(runs, beats):
    """While etcd answers, the end is moved on."""
    runs("--", *beats.command(), ttl=9)  # SIGTERM would come after 4.5 s without etcd
    first = beats.wait()
    last = beats.wait(after=first.until + 1000)
    assert (last.pid, last.token) == (first.pid, first.token)


def test_run_killed_gives_the_command_sigterm_at_once(runs, beats):
    """With a longer TTL, there is time to end in order."""
    run = runs("--", *beats.command("asks"))
    beats.wait("child")
    at = boot_ms()
    run.send(signal.SIGKILL)
    beat = beats.wait("SIGTERM")
    assert beat.at - at < 5000  # when the end is near, it would come anyway: after 10 s or more
    wait_for(lambda: not is_alive(beat.pid))
    assert beats.all()[-1].name == "SIGTERM"


@pytest.mark.parametrize("is_running", [False, True])
def test_run_killed_leaves_no_folder_behind(runs, beats, is_running):
    """The guard removes the folder of RINK_FILE.

    A `rink run` that waits has no folder.
    """
    holder = runs("--", "sh", "-c", 'echo "$RINK_FILE"; exec sleep 60')
    file = Path(wait_for(lambda: holder.output).strip())
    assert file.exists()
    killed = holder
    if not is_running:
        killed = runs("--", *beats.command())
        killed.wait_log("waits for role")
    killed.send(signal.SIGKILL)
    killed.ends()
    wait_for(lambda: not list(file.parents[1].glob(f"rink-run-{killed.pid}-*")))
    assert file.parent.exists() is not is_running


def test_etcd_cut_off_kills_before_the_end_told(runs, beats, wire_to, etcd_node):
    """Consul's lock killed 90 s late (#9788)."""
    wire = wire_to(etcd_node)
    run = runs("--", *beats.command("orphan", "deaf"), endpoint=wire.endpoint, ttl=SHORT_TTL)
    beats.wait("orphan")
    until = beats.wait("child").until
    assert until > 0
    wait_for(lambda: beats.all("child")[-1].until > until)  # it is moved on
    wire.silence()
    run.wait_log("is killed")
    alive_at = beats.wait_over()
    until = max(beat.until for beat in beats.all())
    beats.assert_over_before(until, alive_at)
    token = beats.all()[-1].token
    wire.heal()
    assert beats.wait("child", token_above=token)  # it waits for the role again, and gets it


def test_etcd_cut_off_once_exits_124(runs, beats, wire_to, etcd_node):
    wire = wire_to(etcd_node)
    run = runs("--once", "--", *beats.command(), endpoint=wire.endpoint, ttl=SHORT_TTL)
    beats.wait("child")
    wire.cut()
    alive_at = beats.wait_over()
    beats.assert_over_before(max(beat.until for beat in beats.all()), alive_at)
    assert run.ends() == 124


def test_guard_killed_kills_every_process_of_the_command(runs, beats):
    run = runs("--", *beats.command("orphan", "deaf"), ttl=SHORT_TTL)
    beats.wait("child")
    beats.wait("orphan")
    at = boot_ms()
    os.kill(run.guard, signal.SIGKILL)
    run.wait_log("the guard has ended")
    pids = {beat.pid for beat in beats.all() if beat.at <= at}
    alive_at = beats.wait_over(pids)
    until = max(beat.until for beat in beats.all() if beat.pid in pids)
    assert alive_at < until + beats.stalled_ms
    token = beats.all()[0].token
    assert beats.wait("child", token_above=token)


def test_guard_stopped_has_run_kill_the_command(runs, beats, wire_to, etcd_node):
    """The guard is stopped and etcd is cut off, so `rink run` kills."""
    wire = wire_to(etcd_node)
    line = ["--once", "--", *beats.command("orphan", "deaf")]
    run = runs(*line, endpoint=wire.endpoint, ttl=SHORT_TTL)
    beats.wait("child")
    beats.wait("orphan")
    guard = run.guard
    os.kill(guard, signal.SIGSTOP)
    wait_stopped(guard)
    wire.cut()
    alive_at = beats.wait_over()
    beats.assert_over_before(max(beat.until for beat in beats.all()), alive_at)
    assert run.ends() == 124
    assert "so `rink run` killed it" in run.log


def test_takeover_after_a_kill_has_a_greater_token_and_no_overlap(runs, beats):
    first = runs("--", *beats.command("orphan", "deaf"), ttl=SHORT_TTL)
    old = beats.wait("child")
    runs("--", *beats.command())
    first.send(signal.SIGKILL)
    new = beats.wait("child", token_above=old.token)
    last = [beat for beat in beats.all() if beat.token == old.token][-1]
    assert last.at < new.at


def test_handover_has_no_overlap(runs, beats):
    first = runs("--", *beats.command("orphan"), "--grace", "1")
    old = beats.wait("child")
    second = runs("--", *beats.command())
    second.wait_log("waits for role")
    time.sleep(0.2)
    assert first.ends(signal.SIGTERM) == -signal.SIGTERM
    new = beats.wait("child", token_above=old.token)
    last = [beat for beat in beats.all() if beat.token == old.token][-1]
    assert last.at < new.at


def test_lease_that_ends_early_moves_no_end_on(runs, beats, etcd_url, prefix):
    """An operator revokes the lease.

    The member gets a new lease, which does not extend the end of the command.
    """
    runs("--grace", "30", "--", *beats.command("deaf"), ttl=SHORT_TTL)
    first = beats.wait()
    with contextlib.closing(Client([etcd_url])) as etcd:
        (record,) = etcd.range(f"{prefix}g/members/".encode(), f"{prefix}g/members0".encode()).kvs
        etcd.revoke(record.lease)
        revoked_at = boot_ms()
    beats.wait_over({first.pid})
    second = beats.wait(token_above=first.token)
    last = [beat for beat in beats.all() if beat.token == first.token][-1]
    latest = revoked_at + MAX_LEAD_MS  # no end told before is further ahead
    assert last.at < latest + beats.stalled_ms
    assert last.at < second.at
