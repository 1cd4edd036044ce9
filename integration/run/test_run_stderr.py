"""Test a stderr that nobody reads.

It keeps no command alive past its end, and delays no signal.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from run_support import DEFAULT_SIGNALS, boot_ms, wait_for

from rink.etcd.client import Client
from rink.run.guard_link import GUARD

pytestmark = pytest.mark.waits

UNTIL_MS, LEAD_MS = 6_000, 500


def fill(fd):
    """Fill an open file, and leave it blocking for other processes."""
    os.set_blocking(fd, False)
    for size in (4096, 1):
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(fd, b"x" * size)
    os.set_blocking(fd, True)


@pytest.fixture(params=["pipe", "socket"])
def unread(request):
    """Return a file like stderr that nobody reads. A journal is a socket."""
    if request.param == "pipe":
        source, target = os.pipe()
        yield target
        os.close(source)
        os.close(target)
        return
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield theirs.fileno()


@pytest.mark.parametrize("is_closed", [False, True])
def test_guard_alone_kills_before_the_end_told(unread, beats, is_closed):
    """The guard writes a log line for each kill.

    Either no further end comes, or `rink run` is gone.
    """
    fill(unread)
    guard_in, to = os.pipe()
    source, guard_out = os.pipe()
    until = boot_ms() + UNTIL_MS
    options = {
        "in": guard_in, "out": guard_out, "until": until, "grace": 500, "notice": 500,
        "lead": LEAD_MS, "ignored": "", "job": os.getpgrp(), "file": "", "role": "'r'",
        "cgroup": "",
    }  # fmt: skip
    line = [f"{name}={value}" for name, value in options.items()]
    guard = subprocess.Popen(
        [*DEFAULT_SIGNALS, sys.executable, "-I", "-S", GUARD, *line, "--",
         *beats.command("deaf", "orphan")],
        pass_fds=(guard_in, guard_out), stderr=unread, start_new_session=True,
        env={**os.environ, "RINK_TOKEN": "1"},
    )  # fmt: skip
    try:
        os.close(guard_in)
        os.close(guard_out)
        beats.wait("child")
        beats.wait("orphan")
        if is_closed:
            os.close(to)
        alive_at = beats.wait_over()
        beats.assert_over_before(until, alive_at)
        assert guard.wait(60) == 0
    finally:
        guard.kill()
        guard.wait()
        os.close(source)
        if not is_closed:
            os.close(to)


def test_run_kills_and_hears_signals(unread, runs, beats, wire_to, etcd_node):
    """etcd is cut off and comes back, then SIGTERM ends `rink run`.

    The command is started again in between.
    """
    wire = wire_to(etcd_node)
    line = ["--grace", "0.3", "--", *beats.command("orphan", "deaf")]
    run = runs(*line, endpoint=wire.endpoint, ttl=6, popen={"stderr": unread})
    beats.wait("orphan")
    old = beats.wait("child")
    fill(unread)
    wire.silence()
    alive_at = beats.wait_over()
    until = max(beat.until for beat in beats.all())
    beats.assert_over_before(until, alive_at)
    wire.heal()
    beats.wait("child", token_above=old.token)
    at = time.monotonic()
    assert run.ends(signal.SIGTERM) == -signal.SIGKILL
    assert time.monotonic() - at < 10


def test_waiting_run_hears_sigterm(unread, runs, beats, etcd_url, prefix):
    runs("--", *beats.command())
    beats.wait()
    fill(unread)
    waiting = runs("--", *beats.command(), popen={"stderr": unread})
    with contextlib.closing(Client([etcd_url])) as etcd:
        members = f"{prefix}g/members/".encode(), f"{prefix}g/members0".encode()
        wait_for(lambda: len(etcd.range(*members).kvs) == 2)
    assert waiting.ends(signal.SIGTERM) == -signal.SIGTERM
