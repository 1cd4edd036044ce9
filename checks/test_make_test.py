"""Check that `.ci/test` fails when one of its runs fails.

`make test` runs it.
"""

import shutil
import subprocess

import pytest
from docs_support import ROOT

RUN = """#!/bin/sh
echo "$0 $*" >>runs
case "$0 $*" in *"$FAILS") exit 1 ;; esac
"""
RUNS = (".ci/unit --measured", ".ci/integration waiting", ".ci/integration computing")


def run(folder, fails):
    """Run `.ci/test` on scripts that do nothing.

    Return its exit status and the scripts' calls.
    """
    for name in (".ci/unit", ".ci/integration", ".venv/bin/python"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RUN)
        path.chmod(0o755)
    shutil.copy(ROOT / ".ci" / "test", folder / ".ci")
    command = [".ci/test", "--measured"]
    ended = subprocess.run(command, cwd=folder, env={"FAILS": fails}, check=False)
    return ended.returncode, (folder / "runs").read_text().splitlines()


def test_it_passes_when_every_run_passes(tmp_path):
    status, runs = run(tmp_path, "nothing")
    assert status == 0
    assert {*RUNS} < {*runs}


@pytest.mark.parametrize("fails", RUNS)
def test_it_fails_when_a_run_fails_and_still_names_the_slowest(tmp_path, fails):
    status, runs = run(tmp_path, fails)
    assert status != 0
    assert runs[-1].startswith(".venv/bin/python .ci/slowest")


@pytest.mark.parametrize("fails", RUNS[:2])
def test_what_computes_on_servers_waits_for_all_others_to_pass(tmp_path, fails):
    assert RUNS[2] not in run(tmp_path, fails)[1]
