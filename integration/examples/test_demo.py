"""Run the examples as their users run them.

The flights demo must fail when its fence is off.
"""

import json

import pytest
from examples_support import run


def test_demo_comes_to_equal_totals_through_deploy_freeze_and_kill():
    result = run("flights.py", "--quick", "--json")
    assert result.returncode == 0, result.stderr[-4000:] + result.stdout
    report = json.loads(result.stdout)
    assert report["ok"]
    assert report["flights"]["got"] == report["flights"]["expected"]
    assert report["flights"]["got"]["flights"] == 80_789  # January to March
    assert {
        name: found["count"] for name, found in report["faults"].items() if found["count"]
    } == {}
    assert report["writes"]["stale_refused"] >= 1
    # A surge deploy moves each rank, and so each role, exactly once.
    assert [rank["moves"]["deploy"] for rank in report["ranks"]] == [1, 1, 1]
    assert report["deploy_moves_per_role"] == {"roles": 16, "least": 1, "most": 1}
    # A planned hand-over waits for no lease, which would take 2.5 s.
    assert report["gaps"]["replaced"]["max_ms"] < 2000
    assert "\x1b" not in result.stderr, "no control codes where there is no terminal"


@pytest.mark.deep
def test_without_the_fence_the_demo_fails_and_says_what_is_wrong():
    """Without the fence the demo fails and names the fault.

    The frozen process's belated write gets through. If it did not, the checks could not see it.
    """
    result = run("flights.py", "--quick", "--no-fence", "--json")
    assert result.returncode == 1, result.stderr[-4000:] + result.stdout
    report = json.loads(result.stdout)
    assert not report["ok"]
    assert report["flights"]["got"] != report["flights"]["expected"]
    for fault in ("totals that differ", "chunks doubled or lost", "stale writes accepted"):
        assert report["faults"][fault]["count"] >= 1, fault
    # Rink's own half holds all the same.
    assert report["faults"]["overlaps among live processes"]["count"] == 0


@pytest.mark.waits
def test_leader_example_hands_over_after_a_kill_and_after_a_request():
    result = run("leader.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("leads, with token") >= 3
