"""Two minutes of mishaps by a seed; `make chaos-streams MINUTES=10` has as many as one likes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parent / "chaos" / "run.py"


@pytest.mark.timeout(400)
def test_whatever_happens_nothing_is_lost_out_of_order_or_accepted_from_who_is_no_owner():
    minutes = os.environ.get("CHAOS_MINUTES", "2")
    command = [sys.executable, str(RUN), "--minutes", minutes, "--json"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-4000:]
    found = json.loads(ended.stdout)
    assert found["ok"], ended.stderr[-4000:]
    assert found["sent"] > 10_000 * float(minutes)
    names = ("order_violations", "lost", "stale_accepted", "doubled")
    assert {name: found[name] for name in names} == dict.fromkeys(names, 0)
