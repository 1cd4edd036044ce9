"""Test that the command gets a cgroup if possible.

The kill of the cgroup ends all processes in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rink.run.command_guard import Cgroup

pytestmark = pytest.mark.waits

DELEGATED = """
import os, subprocess, sys, time
point, *command = sys.argv[1:]
subprocess.run(["mount", "-t", "cgroup2", "none", point], check=True)
own = f"{point}/rink-test-{os.getpid()}"
os.mkdir(own)
os.setxattr(own, "trusted.delegate", b"1")
with open(f"{own}/cgroup.procs", "w") as file:
    file.write("0")
done = subprocess.run(command)
left = [one for one in os.listdir(own) if one.startswith("rink-run")]
with open(f"{point}/cgroup.procs", "w") as file:
    file.write("0")
for _ in range(500):  # the kernel may take a moment to see that nothing runs in it
    try:
        os.rmdir(own)
        break
    except OSError:
        time.sleep(0.01)
else:
    sys.exit(f"cannot be removed: {own}")
sys.exit(f"left behind: {left}" if left else done.returncode)
"""


@pytest.fixture
def mounting(tmp_path):
    """Begin a command in a delegated cgroup, with mounts of its own."""
    command = ["unshare", "--mount", sys.executable, "-c", DELEGATED, str(tmp_path)]
    tried = subprocess.run([*command, "true"], check=False, capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no cgroups here: {tried.stderr}")
    return command


def test_command_runs_in_a_cgroup_of_its_own_which_is_removed(runs, mounting):
    run = runs("--", "cat", "/proc/self/cgroup", before=mounting)
    assert run.ends() == 0, run.log
    assert "/rink-run-" in run.output


def test_command_without_a_delegated_cgroup_stays_in_the_own(runs):
    run = runs("--", "cat", "/proc/self/cgroup")
    assert run.ends() == 0
    assert run.output == Path("/proc/self/cgroup").read_text()


def test_kill_of_a_cgroup_ends_all_in_it(mounting, tmp_path):
    code = "import subprocess, sys; from pathlib import Path\n"
    code += "from rink.run.command_guard import Cgroup\n"
    code += (
        "own = Path(sys.argv[1]) / next(p.name for p in Path(sys.argv[1]).glob('rink-test-*'))\n"
    )
    code += "group = own / 'g'; group.mkdir()\n"
    code += "child = subprocess.Popen(['sleep', '60'], preexec_fn=Cgroup(str(group)).enter)\n"
    code += "Cgroup(str(group)).kill(); code = child.wait(20); Cgroup(str(group)).remove()\n"
    code += "sys.exit(0 if code == -9 and not group.exists() else f'{code}')\n"
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [*mounting, sys.executable, "-c", code, str(tmp_path)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.returncode == 0, done.stderr


def test_cgroup_that_may_not_be_made_does_nothing(tmp_path):
    group = Cgroup("")
    group.enter()
    group.kill()
    group.remove()
    missing = Cgroup(str(tmp_path / "missing"))
    missing.enter()
    missing.kill()
    missing.remove()
