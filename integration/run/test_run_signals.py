"""Test the effects of signals on `rink run` and its command."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import time
from pathlib import Path

import pytest
from handing_over import slowness, time_start
from processes import is_alive
from run_support import boot_ms, wait_for

from rink.run.signal_stages import SAME_SIGNAL_INTERVAL_S

pytestmark = pytest.mark.waits

ENDS_WITHIN_S = 0.2
TRIES = 5
ENDING = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]


def assert_ends_at_once(waiting, number):
    """Send a signal to each process. More than half must end fast enough.

    Other tests make the machine slower, so each try also measures how long a bare Python takes to
    start. `figures.py` has the fixed limit, for a quiet machine.
    """
    took, starts = [], []
    for run in waiting:
        at = time.monotonic()
        assert run.ends(number) == -number
        took.append(time.monotonic() - at)
        starts.append(time_start())
    assert statistics.median(took) < ENDS_WITHIN_S * slowness(starts), (took, starts)


@pytest.mark.parametrize("number", ENDING)
def test_signal_while_waiting_ends_run_at_once(runs, beats, number):
    """Consul's lock did not hear SIGTERM while it waited (#4439)."""
    runs("--", *beats.command())
    beats.wait()
    waiting = [runs("--handover-wait", "20", "--", *beats.command()) for _ in range(TRIES)]
    for run in waiting:
        run.wait_log("waits for role")
    assert_ends_at_once(waiting, number)
    assert len({beat.pid for beat in beats.all()}) == 1


def test_sigterm_while_etcd_is_away_ends_run_at_once(runs, beats, wire_to, etcd_node):
    wire = wire_to(etcd_node)
    wire.cut()
    waiting = [runs("--", *beats.command(), endpoint=wire.endpoint) for _ in range(TRIES)]
    for run in waiting:
        run.wait_log("waits to join group")
    assert_ends_at_once(waiting, signal.SIGTERM)


def test_sigterm_while_etcd_has_gone_silent_ends_run_at_once(runs, beats, wire_to, etcd_node):
    """The member cannot leave in order, so its lease must end."""
    runs("--", *beats.command())
    beats.wait()
    wire = wire_to(etcd_node)
    waiting = [runs("--", *beats.command(), endpoint=wire.endpoint) for _ in range(TRIES)]
    for run in waiting:
        run.wait_log("waits for role")
    wire.silence()
    assert_ends_at_once(waiting, signal.SIGTERM)


def test_etcd_away_at_the_start_is_waited_for(runs, beats, wire_to, etcd_node):
    wire = wire_to(etcd_node)
    wire.cut()
    run = runs("--", *beats.command(), endpoint=wire.endpoint)
    run.wait_log("waits to join group")
    wire.heal()
    beats.wait()


def test_other_signals_are_passed_on_at_once(runs, beats):
    run = runs("--", *beats.command("asks"))
    beats.wait()
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
        run.send(number)
        beats.wait(number.name)
    assert run.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signal_reaches_the_command_when_its_role_is_lost(runs, beats, number):
    """Nobody takes over, so the wait lasts until the second signal ends it."""
    run = runs("--handover-wait", "30", "--", *beats.command("asks"))
    beats.wait()
    run.send(number)
    run.wait_log(f"{number.name}: leaving; waits up to 30 s for a successor")
    at = boot_ms()
    beats.wait(after=at + 200)
    assert not beats.all(number.name)
    run.send(number)
    beats.wait(number.name)
    assert run.ends() == 0  # the command's own code
    assert "waits for no successor" in run.log


def test_successor_ends_the_wait(runs, beats):
    run = runs("--handover-wait", "30", "--", *beats.command("asks"))
    old = beats.wait()
    run.send(signal.SIGTERM)
    run.wait_log("leaving")
    runs("--", *beats.command())
    beats.wait("SIGTERM")
    assert run.ends() == 0
    assert beats.wait(token_above=old.token)


def test_third_signal_kills(runs, beats):
    run = runs("--handover-wait", "30", "--grace", "30", "--", *beats.command("deaf"))
    beats.wait()
    for text in ("leaving", "waits for no successor", "the command is killed"):
        run.send(signal.SIGTERM)
        run.wait_log(text)
        time.sleep(SAME_SIGNAL_INTERVAL_S)
    assert run.ends() == -signal.SIGKILL


def test_timeout_sends_two_signals_and_the_command_ends_in_order(runs):
    """The second of both signals must not kill the command.

    `timeout` signals `rink run` and then its group.
    """
    shell = 'trap "sleep 0.3; echo in order; exit 3" TERM; echo ready; while :; do sleep 0.01; done'
    run = runs("--", "sh", "-c", shell, before=["timeout", "60"])
    wait_for(lambda: run.output == "ready\n")
    assert run.ends(signal.SIGTERM) == 3
    assert run.output == "ready\nin order\n"


def test_grace_is_over_kills(runs, beats):
    run = runs("--grace", "2", "--", *beats.command("deaf"))
    beats.wait()
    at = boot_ms()
    assert run.ends(signal.SIGTERM) == -signal.SIGKILL
    assert boot_ms() - at >= 2000
    assert beats.all()[-1].at - at > 400  # it beats as often as the machine lets it


@pytest.mark.parametrize(
    ("shell", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -USR1 $$", -signal.SIGUSR1), ("kill -9 $$", -9)],
)
def test_run_ends_as_its_command(runs, shell, code):
    assert runs("--", "sh", "-c", shell).ends() == code


def test_codes_of_env(runs, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("no program")
    bad = tmp_path / "bad"
    bad.write_text("#!/no/such/interpreter\n")
    bad.chmod(0o755)
    codes = [runs("--", one).ends() for one in ("no-such-command", str(plain), str(bad))]
    assert codes == [127, 126, 127]
    assert runs("--no-such-option", "--", "true").ends() == 125
    assert runs("--once", "--restart", "--", "true").ends() == 125


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_codes_stand_where_standard_files_are_closed(runs, closed):
    before = ["sh", "-c", f'exec "$@" {closed}', "sh"]
    assert runs("--", "no-such-command", before=before).ends() == 127
    shell = "[ -e /proc/self/fd/0 ] && [ -e /proc/self/fd/1 ] && [ -e /proc/self/fd/2 ] && exit 3"
    assert runs("--", "sh", "-c", shell, before=before).ends() == 3


def test_code_of_the_command_stands_if_a_signal_comes_in_the_leave(
    runs, tmp_path, wire_to, etcd_node
):
    """etcd is silent, so the leave takes long. A signal ends the leave."""
    wire = wire_to(etcd_node)
    until = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done; exit 3"
    run = runs("--", "sh", "-c", f"echo; {until}", endpoint=wire.endpoint)
    wait_for(lambda: run.output)
    wire.silence()
    (tmp_path / "go").touch()
    run.wait_log("the command has ended with code 3")
    at = time.monotonic()
    assert run.ends(signal.SIGTERM) == 3
    assert time.monotonic() - at < 5
    assert "SIGTERM: `rink run` ends with code 3, and cuts its leave short" in run.log


def test_name_that_is_taken_is_named(runs, beats):
    runs("--name", "a", "--", *beats.command())
    beats.wait()
    waiting = runs("--name", "a", "--wait", "5", "--", *beats.command())
    assert waiting.ends() == 75
    assert re.search(r"--wait 5: the record members/a \(.*\) has the name 'a'", waiting.log)


def test_role_not_got_within_wait_exits_75(runs, beats):
    first = runs("--name", "first", "--", *beats.command())
    beats.wait()
    waiting = runs("--wait", "5", "--", *beats.command())
    assert waiting.ends() == 75
    assert "was not granted within --wait 5" in waiting.log
    assert "member 'first' owns it until it leaves" in waiting.log
    assert first.process.poll() is None


def test_environment_has_the_role_and_no_way_to_etcd(runs):
    run = runs(
        "--", "sh", "-c", "env; cat $RINK_FILE; ls -l /proc/self/fd",
        RINK_ETCD_USER="", RINK_ETCD_PASSWORD="", RINK_SIDECAR_TOKEN_FILE="/x", RINK_OTHER="stays",
    )  # fmt: skip
    assert run.ends() == 0
    lines = run.output.splitlines()
    rink = {one.partition("=")[0]: one.partition("=")[2] for one in lines if one.startswith("RINK")}
    assert set(rink) == {
        "RINK_GROUP", "RINK_ROLE", "RINK_RANK", "RINK_TOKEN", "RINK_FILE", "RINK_OTHER",
    }  # fmt: skip
    assert (rink["RINK_GROUP"], rink["RINK_ROLE"], rink["RINK_RANK"]) == ("g", "r", "0")
    (file,) = [one.split() for one in lines if one.startswith(rink["RINK_TOKEN"] + " ")]
    assert int(file[1]) <= boot_ms() < int(file[2]) + 3000
    assert not Path(rink["RINK_FILE"]).parent.exists()
    files = {one.split()[-3] for one in lines if " -> " in one and "/fd" not in one.split()[-1]}
    assert files == {"0", "1", "2"}


def test_restart_has_a_greater_token_each_time(runs, beats):
    run = runs("--restart", "--", "timeout", "0.2", *beats.command())
    third = wait_for(lambda: len({beat.token for beat in beats.all()}) >= 3)
    tokens = list(dict.fromkeys(beat.token for beat in beats.all()))
    assert third
    assert tokens == sorted(tokens)
    assert run.ends(signal.SIGTERM) in (-signal.SIGTERM, 124)


def test_process_1_reaps_orphans_and_hears_sigterm(runs, beats):
    """Process 1 of a container ignores SIGTERM by default."""
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no pid namespaces here")
    run = runs("--", *beats.command("orphan", "asks"), before=unshare)
    beats.wait("orphan")
    beats.wait("child")
    (inner,) = _children(run.pid)
    before = _children(inner)
    # A process of `docker exec` whose parent ends becomes a child of process 1.
    enter = ["nsenter", f"--target={inner}", "--pid", "--mount"]
    subprocess.run([*enter, "sh", "-c", "sleep 0.1 & exit 0"], check=True)
    wait_for(lambda: _children(inner) == before)
    os.kill(inner, signal.SIGTERM)
    beats.wait("SIGTERM")
    assert run.ends() == 0
    wait_for(lambda: not any(is_alive(pid) for pid in _children(inner)))


def test_process_1_ends_with_128_and_the_signal(runs, beats):
    unshare = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode:
        pytest.skip("no pid namespaces here")
    run = runs("--", *beats.command(), before=unshare)
    beats.wait("child")
    (inner,) = _children(run.pid)
    os.kill(inner, signal.SIGTERM)
    assert run.ends() == 128 + signal.SIGTERM


def _children(pid):
    try:
        return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
    except (FileNotFoundError, ProcessLookupError):
        return []
