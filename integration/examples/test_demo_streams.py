"""Run the streams demo as its users run it.

It must fail when nothing is fenced.
"""

import json

import pytest
from examples_support import run

FAULTS_OF_EACH = (
    "order violations", "doubled", "lost", "stale writes accepted", "states that differ",
    "fence never tested",
)  # fmt: skip


def demo(*arguments):
    return run("streams.py", "--quick", "--json", *arguments)


def reported(result):
    assert result.stdout, result.stderr[-4000:]
    return json.loads(result.stdout)


def found(report):
    return {name: fault["count"] for name, fault in report["faults"].items() if fault["count"]}


def assert_equal(report, processors):
    assert found(report) == {}
    assert report["ok"]
    for name in processors:
        for fault in FAULTS_OF_EACH:
            assert report["faults"][f"{name}: {fault}"]["count"] == 0
        got = report["processors"][name]
        assert {key: got[key] for key in report["expected"]} == report["expected"]
        # A surge deploy hands over each partition once, and waits for no lease.
        assert got["gaps"]["deploy"]["count"] == 16
        assert got["gaps"]["deploy"]["max_ms"] < 3000
        assert len(got["refused"]) >= 1
    assert report["expected"]["legs"] == 80_789  # January to March
    assert report["again"]["most"] <= report["window"]


def test_streams_demo_with_mishaps_comes_to_equal_states_in_order():
    """Deploy, freeze and kill change neither the states nor their order."""
    result = demo()
    assert_equal(reported(result), ("exact", "plain"))
    assert result.returncode == 0
    assert "\x1b" not in result.stderr, "no control codes where there is no terminal"


@pytest.mark.deep
def test_on_a_cluster_it_does_so_without_outputs_that_go_with_the_commit():
    result = demo("--cluster")
    report = reported(result)
    assert_equal(report, ("plain",))
    assert list(report["processors"]) == ["plain"]
    assert result.returncode == 0


@pytest.mark.deep
def test_streams_demo_without_fences_fails_and_names_the_faults():
    """Without fences and atomic commits the demo fails, naming the faults.

    The frozen worker's belated outputs get through. If they did not, the checks could not see them.
    """
    result = demo("--careless")
    report = reported(result)
    assert result.returncode == 1
    assert not report["ok"]
    for name in ("exact", "plain"):
        assert report["faults"][f"{name}: stale writes accepted"]["count"] >= 1
        assert report["faults"][f"{name}: doubled"]["count"] >= 1
