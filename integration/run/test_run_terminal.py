"""Test `rink run` in a shell on a real terminal.

This covers Ctrl-Z, `fg`, Ctrl-C, and a role that is lost meanwhile.
"""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path

import pytest
from processes import is_alive, thread_states, wait_stopped
from run_support import DEFAULT_SIGNALS, RINK, ROOT, SHORT_TTL, TTL, boot_ms, wait_for
from shells import PROMPT, Shell

pytestmark = pytest.mark.waits

CTRL_C, CTRL_Z, CTRL_BACKSLASH = "\x03", "\x1a", "\x1c"


@pytest.fixture
def shell(etcd_url):
    shell = Shell(ROOT, PYTHONPATH=str(ROOT), RINK_ETCD=etcd_url)
    yield shell
    shell.close()


@pytest.fixture
def line(prefix, beats):
    def line(*words, ttl=TTL):
        options = ["--group", "g", "--role", "r", "--prefix", prefix, "--ttl", str(ttl)]
        return shlex.join([*RINK, "run", *options, "--", *beats.command(*words)]) + "\n"

    return line


def test_ctrl_z_stops_both_and_fg_continues(shell, line, beats):
    shell.type(line())
    beat = beats.wait()
    assert shell.foreground() == beat.pid
    shell.type(CTRL_Z)
    shown = shell.wait(PROMPT, shell.wait("the command is stopped") - 200)
    assert "Stopped" in shell.text
    assert shell.foreground() == shell.pid
    wait_for(lambda: thread_states(beat.pid) == {"T"})
    at = boot_ms()
    shell.type("fg\n")
    beats.wait(after=at)
    wait_for(lambda: shell.foreground() == beat.pid)
    shell.type(CTRL_C)
    shell.wait(PROMPT, shown)
    wait_for(lambda: not is_alive(beat.pid))
    shell.type("echo code $?\n")
    shell.wait("code 130")


def test_run_is_not_stopped_by_its_own_log(shell, line, beats):
    """With `stty tostop`, a terminal stops background processes that write."""
    shell.type("stty tostop\n")
    shell.type(line())
    beat = beats.wait()
    wait_for(lambda: shell.foreground() == beat.pid)
    os.kill(_parent(_parent(beat.pid)), signal.SIGTERM)  # it says so
    shown = shell.wait("SIGTERM: leaving")
    wait_for(lambda: not is_alive(beat.pid))
    shell.wait(PROMPT, shown)
    shell.type("echo code $?\n")
    shell.wait("code 143")


def _parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_role_is_lost_while_stopped_in_words(shell, line, beats):
    shell.type(line("deaf", ttl=SHORT_TTL))
    beat = beats.wait()
    shell.type(CTRL_Z)
    shell.wait("Unless it goes on, role 'r' of group 'g' is lost")
    alive_at = beats.wait_over()
    beats.assert_over_before(max(beat.until for beat in beats.all()), alive_at)
    shell.wait("is killed")
    shell.type("fg\n")  # it waits for the role again, and gets it
    new = beats.wait(token_above=beat.token)
    wait_for(lambda: shell.foreground() == new.pid)
    shell.type(CTRL_BACKSLASH)
    wait_for(lambda: not is_alive(new.pid))


def test_command_in_the_background_leaves_the_terminal_alone(shell, line, beats):
    shell.type(line().replace("\n", " &\n"))
    beat = beats.wait()
    assert shell.foreground() == shell.pid
    shell.type("fg\n")
    wait_for(lambda: shell.foreground() != shell.pid)  # before, Ctrl-C would go to the shell
    beats.wait(after=boot_ms())
    # `fg` continues nothing that runs. So Ctrl-C goes to `rink run`, which leaves.
    shell.type(CTRL_C)
    wait_for(lambda: not is_alive(beat.pid))


def test_command_that_reads_in_the_background_stops_and_fg_continues_it(shell, prefix, beats):
    options = ["--group", "g", "--role", "r", "--prefix", prefix, "--ttl", "20"]
    command = ["sh", "-c", 'read word; echo "has read $word"']
    shell.type(shlex.join([*RINK, "run", *options, "--", *command]) + " &\n")
    shell.wait("the command is stopped")
    (job,) = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
    wait_stopped(int(job))
    shell.type("\n")  # the shell takes note of it
    shell.wait("Stopped")
    shell.type("fg\n")
    shell.type("apple\n")
    shell.wait("has read apple")


def test_ctrl_z_without_a_shell_has_the_command_go_on(etcd_url, prefix, beats, line):
    """No shell could continue it, as in `docker run -it`."""
    import pty

    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(PYTHONPATH=str(ROOT), RINK_ETCD=etcd_url)
        os.chdir(ROOT)
        words = shlex.split(line())
        os.execvp("env", [*DEFAULT_SIGNALS, *words])
    try:
        beat, shown = beats.wait(), bytearray()
        os.write(fd, CTRL_Z.encode())
        wait_for(lambda: shown.extend(os.read(fd, 4096)) or b"the command is stopped" in shown)
        at = boot_ms()
        beats.wait(after=at + 300)
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda: not is_alive(beat.pid))
    finally:
        os.close(fd)
        wait_for(lambda: os.waitpid(pid, os.WNOHANG)[0])


def test_terminal_that_hangs_up_ends_the_command(etcd_url, prefix, beats, line):
    import pty

    pid, fd = pty.fork()
    if pid == 0:
        os.environ.update(PYTHONPATH=str(ROOT), RINK_ETCD=etcd_url)
        os.chdir(ROOT)
        words = shlex.split(line("orphan"))
        os.execvp("env", [*DEFAULT_SIGNALS, *words])
    beats.wait("child")
    beats.wait("orphan")
    os.close(fd)
    wait_for(lambda: os.waitpid(pid, os.WNOHANG)[0])
    beats.assert_over_before(boot_ms() + 1)
