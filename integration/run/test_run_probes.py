"""Test the probes of `rink run --public` as a kubelet calls them.

A standby is ready, and a member that leaves is not.
"""

from __future__ import annotations

import re
import signal
import urllib.error
import urllib.request

import pytest
from run_support import wait_for

pytestmark = pytest.mark.waits

WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Probes:
    """Call the probes of a `rink run` at any free port."""

    def __init__(self, run):
        run.wait_log("probes and metrics are at")
        self.url = re.search(r"metrics are at (http://\S+)", run.log)[1]

    def get(self, path):
        try:
            with WITHOUT_PROXY.open(self.url + path, timeout=10) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def probed(runs, beats):
    def probed(*line, **more):
        options = ["--public", "127.0.0.1:0", *line]
        run = runs(*options, "--", *beats.command("asks"), **more)
        return run, Probes(run)

    return probed


def test_readyz_of_holder_and_standby_is_ready(probed, beats):
    _, holder = probed()
    beats.wait()
    _, standby = probed()
    for probes, running in ((holder, 1.0), (standby, 0.0)):
        wait_for(lambda probes=probes: probes.get("/readyz")[0] == 200)
        assert probes.get("/startz")[0] == probes.get("/healthz")[0] == 200
        text = probes.get("/metrics")[1]
        assert f"rink_run_running {running}" in text
        assert f"rink_run_starts_total {running}" in text
        assert "rink_run_joined 1.0" in text
        assert 0 < float(re.search(r"(?m)^rink_run_session_remaining_seconds (\S+)", text)[1]) <= 20


def test_readyz_of_run_that_leaves_is_not_ready(probed, beats):
    run, probes = probed("--handover-wait", "30")
    beats.wait()
    assert probes.get("/readyz") == (200, "ok\n")
    run.send(signal.SIGTERM)
    run.wait_log("leaving")
    assert probes.get("/readyz") == (503, "leaves the group\n")
    assert probes.get("/healthz")[0] == 200


def test_readyz_of_a_taken_name_names_it(probed, beats):
    probed("--name", "a")
    beats.wait()
    _, probes = probed("--name", "a")
    wait_for(lambda: "has the name 'a'" in probes.get("/readyz")[1])
    assert probes.get("/readyz")[0] == 503


def test_readyz_without_etcd_is_not_ready_and_startz_is(probed, wire_to, etcd_node):
    wire = wire_to(etcd_node)
    wire.cut()
    _, probes = probed(endpoint=wire.endpoint)
    assert probes.get("/startz")[0] == 200
    status, why = probes.get("/readyz")
    assert status == 503
    assert why.startswith("waits to join the group")
    text = probes.get("/metrics")[1]
    assert "rink_run_joined 0.0" in text
    assert "rink_run_session_remaining_seconds 0.0" in text
    wire.heal()
    wait_for(lambda: probes.get("/readyz")[0] == 200)
