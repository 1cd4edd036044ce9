"""Run the Spark demo as its users run it.

It must fail when nothing is fenced.
"""

import json
import subprocess
import sys

import pytest
from examples_support import EXAMPLES

# Three JVMs start in each test, beside other work on this machine.
PATIENCE_S = 600
pytestmark = [pytest.mark.deep, pytest.mark.timeout(PATIENCE_S + 20)]


def demo(*arguments):
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / "pipeline.py"), "--quick", "--json", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.stdout, result.stderr[-4000:]
    return result, json.loads(result.stdout)


def test_spark_demo_with_kill_and_freeze_has_equal_totals(tmp_path):
    """The totals are equal after a kill and a freeze, with writes refused."""
    written = tmp_path / "page.html"
    result, report = demo("--report", str(written))
    found = {name: fault["first"] for name, fault in report["faults"].items() if fault["count"]}
    assert found == {}
    assert report["ok"]
    assert result.returncode == 0
    flights = report["totals"]["flights"]
    assert set(flights.values()) == {51_955}  # January and February
    assert [one["cause"] for one in report["takeovers"]] == ["start", "killed", "frozen"]
    # All four parts that the killed driver had written, and what the frozen one had.
    assert report["known"] >= 4
    assert any("is stale" in one for one in report["refused"])
    page = written.read_text()
    assert page.count("<svg") == 2
    assert "http-equiv" not in page
    assert "src=" not in page
    assert "\x1b" not in result.stderr, "no control codes where there is no terminal"


def test_without_fence_and_marks_the_demo_fails_and_says_what_is_wrong():
    """Without fence and marks the demo fails and names the faults.

    The frozen driver's belated write gets through, and the killed one's batch counts twice.
    """
    result, report = demo("--careless")
    assert result.returncode == 1
    assert not report["ok"]
    for fault in (
        "stale writes accepted by Redis",
        "doubled in Redis",
        "totals in Redis that differ",
        "the fence was never put to the test",
    ):
        assert report["faults"][fault]["count"] >= 1, fault
    assert "the demo could not be finished" not in report["faults"]
