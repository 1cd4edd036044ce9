"""Run the chaos test for 20 s, or for 120 s (deep)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "chaos" / "run.py"


@pytest.mark.timeout(400)
@pytest.mark.parametrize("seconds", [20, pytest.param(120, marks=pytest.mark.deep)])
def test_chaos_run_loses_nothing_and_accepts_nothing_stale(seconds):
    """Random mishaps lose nothing, keep the order, and let no stale write in."""
    minutes = seconds / 60
    command = [sys.executable, str(RUN), "--minutes", str(minutes), "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    seed, _, log = ended.stderr.partition("\n")
    assert ended.returncode == 0, f"{seed}\n{log[-4000:]}"
    found = json.loads(ended.stdout)
    assert len(found["mishaps"]) >= min(seconds // 6, 8), found["mishaps"]  # of 8 kinds
    assert found["sent"] > 10_000 * minutes
    names = ("order_violations", "lost", "stale_accepted", "doubled")
    assert {name: found[name] for name in names} == dict.fromkeys(names, 0)
