"""Test that held.sh of examples/sidecar/shell equals `rink held`."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest
from sidecar_support import DEADLINE_S, FAST, RINK, wait_for

from rink.sidecar.clock import now_ms

FUNCTION = Path(__file__).parents[2] / "examples" / "sidecar" / "shell" / "held.sh"
HOUR_MS = 3_600_000


def by_shell(folder, role):
    """Return the exit status and the output of the function."""
    code = f". {shlex.quote(str(FUNCTION))}; held {shlex.quote(role)}"
    env = {**os.environ, "RINK_FILES": str(folder)}
    ran = subprocess.run(["sh", "-c", code], env=env, capture_output=True, text=True, check=False)
    assert ran.stderr == ""
    return ran.returncode, ran.stdout


def by_rink(folder, role):
    """Return the exit status and the output of the command."""
    line = [*RINK, "held", role, "--files", str(folder)]
    ran = subprocess.run(line, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("7 {before} {after}\n", (0, "7\n")),
        ("7 {before} {before}\n", (3, "")),
        ("7 {after} {after}\n", (3, "")),  # of an earlier start of the machine
        ("7 {before}\n", (3, "")),
        ("7 {before} {after} 9\n", (3, "")),
        ("7 x {after}\n", (3, "")),
        ("7 {before} x\n", (3, "")),
        ("\n", (3, "")),
        (None, (3, "")),
    ],
)
def test_held_function_agrees_with_the_command(tmp_path, line, expected):
    now = now_ms()
    (tmp_path / "held").mkdir()
    if line is not None:
        text = line.format(before=max(0, now - HOUR_MS), after=now + HOUR_MS)
        (tmp_path / "held" / "job-17").write_text(text)
    assert by_shell(tmp_path, "job-17") == by_rink(tmp_path, "job-17") == expected


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm, which is a tmpfs")
def test_held_function_follows_a_sidecar(sidecar):
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="rink-test-") as folder:
        one = sidecar("one", (*FAST, "--files", folder))
        assert by_shell(folder, "job-17") == by_rink(folder, "job-17") == (3, "")
        body = {"roles": ["job-17"], "wait": 20, "alive": 60}
        (turn,) = one.call("POST", "/v1/hold", body)[1]["held"]
        token = f"{turn['token']}\n"
        # The end in the file has passed for a moment, if the sidecar itself stood still.
        wait_for(lambda: by_shell(folder, "job-17") == by_rink(folder, "job-17") == (0, token))
        one.kill()  # its file stays
        wait_for(lambda: by_shell(folder, "job-17") == (3, ""))
        assert by_rink(folder, "job-17") == (3, "")


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm, which is a tmpfs")
def test_folder_is_one_sidecars_until_it_is_killed(sidecar):
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="rink-test-") as folder:
        options = (*FAST, "--files", folder)
        first = sidecar("first", options)
        with pytest.raises(AssertionError, match="another sidecar writes its files there"):
            sidecar("second", options)
        first.kill()
        sidecar("third", options)


def is_replaced_by_folder(path):
    """Replace a file by a folder; return False if the sidecar was faster."""
    path.unlink(missing_ok=True)
    with contextlib.suppress(FileExistsError):
        path.mkdir()
    return path.is_dir()


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm, which is a tmpfs")
def test_folder_is_empty_after_an_orderly_end(sidecar):
    """A folder that the program puts there stays, and ends nothing."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="rink-test-") as folder:
        held = Path(folder, "held")
        one = sidecar("one", (*FAST, "--grace", "0", "--files", folder))
        body = {"roles": ["job-17", "job-18"], "wait": 20, "alive": 60}
        one.call("POST", "/v1/hold", body)
        wait_for(lambda: {path.name for path in held.iterdir()} == {"job-17", "job-18"})
        wait_for(lambda: is_replaced_by_folder(held / "job-18"))
        (held / "stray").write_text("7 1 99999999999999\n")
        one.process.terminate()
        assert one.process.wait(DEADLINE_S) == 0, one.said()
        assert [path.name for path in held.iterdir()] == ["job-18"]
        assert "cannot remove job-18 from" in one.said()
