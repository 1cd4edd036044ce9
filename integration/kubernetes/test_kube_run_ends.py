"""Test that `make k8s` leaves nothing behind, however it ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.deep, pytest.mark.timeout(1800)]

RUN = Path(__file__).with_name("run.py")
ROOT = Path(__file__).parents[2]


def processes_of(folder):
    """Return the ids of processes that have the folder in their command."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def wait_until(is_so, timeout, what):
    end = time.monotonic() + timeout
    while not is_so():
        assert time.monotonic() < end, what
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_run_that_is_ended_leaves_no_process_and_no_folder(kube, tmp_path, number):
    """A run that is ended leaves no process and no folder.

    The fixture `kube` builds the control plane, or skips the test.
    """
    command = [sys.executable, str(RUN), "--only", "surge-3"]
    env = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    log = tmp_path.parent / f"{tmp_path.name}.log"
    with log.open("w") as output:
        run = subprocess.Popen(command, env=env, stdout=output, stderr=output)
    with run:
        members = tmp_path.glob
        wait_until(lambda: list(members("*/events/surge-3/*.jsonl")), 60, log.read_text())
        run.send_signal(number)
        run.wait(60)
    wait_until(lambda: not processes_of(tmp_path), 30, "its processes are gone")
    wait_until(lambda: not list(tmp_path.iterdir()), 30, "its folder is gone")
    if number != signal.SIGKILL:  # what a killed run leaves of networks, the next one removes
        assert not list(Path("/run/netns").glob(f"rinkt{run.pid}-*"))
        assert "stopped" in log.read_text()
