"""Test the flights' program in Go beside a real sidecar.

Kubernetes is not needed. The judge of the example judges the program's output.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time

import flights_pods
import pytest
from common.events import Tail
from flights_demo import checks
from flights_demo.data import make_jobs, plain_totals, read_flights
from flights_demo.report import faults_of_rink, faults_of_the_work
from flights_demo.store import Store
from flights_roll import build_program
from kube_build import NoControlPlaneError
from sidecar_support import DEADLINE_S, FAST, Sidecar, wait_for

# Go's first build of SQLite takes a minute.
pytestmark = [pytest.mark.deep, pytest.mark.timeout(400)]

TTL_S = 9.0
"""The `--ttl` of FAST."""
GREATER = 10**9
"""A token that a later holder would have."""
DAY = [one for one in read_flights(1) if one.day == 1]
JOBS = make_jobs(DAY)
ROLES = {f"carrier/{job.carrier}" for job in JOBS.values()}
MEMBERS = ("one", "two")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Build the program, and return its folder."""
    folder = tmp_path_factory.mktemp("program")
    try:
        build_program(folder)
    except NoControlPlaneError as error:
        pytest.skip(str(error))
    return folder


class Pods:
    """Run pairs of a program and its sidecar, on one store of a day's jobs."""

    def __init__(self, folder, program, etcd_url, prefix):
        self.folder = folder
        self.store = Store(folder / "store.db")
        self._program = program / "flights-go"
        self._sidecar = [folder, etcd_url, prefix]
        self._running = {}
        self.sidecars = {}

    def start(self, name, pace_s):
        """Start a sidecar and its program; return the program's process."""
        folder, etcd_url, prefix = self._sidecar
        options = (*FAST[:-1], "20")  # it waits for a successor
        sidecar = Sidecar(folder, name, etcd_url, prefix, options).start()
        env = {
            "RINK_API": sidecar.api, "POD_NAME": name, "POD_REVISION": "1",
            "FLIGHTS_DIRECTORY": str(folder), "FLIGHTS_PACE": str(pace_s),
        }  # fmt: skip
        self.sidecars[name] = sidecar
        self._running[name] = subprocess.Popen([self._program], env=os.environ | env)
        return self._running[name]

    def events(self, *names):
        """Return the events so far, of some pods if they are named."""
        events = Tail(self.folder / "events").new()
        return [one for one in events if not names or one["member"] in names]

    def carriers(self, name):
        """Return the roles of carriers that a pod has now, by its own account."""
        held = checks.holdings(self.events(name))
        return {one.role for one in held if one.role in ROLES and one.end == float("inf")}

    def faults(self):
        """Return what the judge of the example finds."""
        history, accepted = self.events(), self.store.accepted()
        held = checks.holdings(history)
        faults = faults_of_rink(history, held, accepted, ttl=TTL_S)
        totals = self.store.totals()
        faults |= faults_of_the_work(self.store, accepted, totals, plain_totals(DAY))
        return {name: found for name, found in faults.items() if found}

    def close(self):
        for process in self._running.values():
            process.kill()
            process.wait()
        for sidecar in self.sidecars.values():
            sidecar.kill()
        self.store.close()


@pytest.fixture
def pods(tmp_path, program, etcd_url, prefix, monkeypatch):
    """Yield a maker of pods of one group, and end all pods."""
    monkeypatch.setenv("FLIGHTS_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(flights_pods, "read_flights", lambda: DAY)
    flights_pods.prepare()
    with contextlib.closing(Pods(tmp_path, program, etcd_url, prefix)) as made:
        yield made


def test_programs_share_all_work_and_hand_over_at_sigterm(pods):
    first = pods.start("one", 0.1)
    pods.start("two", 0.1)
    wait_for(lambda: all(map(pods.carriers, MEMBERS)), "both have carriers")
    first.terminate()
    wait_for(lambda: pods.events("one")[-1]["what"] != "working", "it has given its jobs back")
    assert first.poll() is None, "it did not wait until it held nothing"
    pods.sidecars["one"].drain()
    assert first.wait(DEADLINE_S) == 0
    wait_for(lambda: pods.carriers("two") == ROLES, "a holder of each carrier")
    wait_for(lambda: pods.store.done() == len(JOBS), "the last job")
    assert pods.faults() == {}
    assert pods.store.refused() == []
    assert pods.events("one")[-1]["what"] == "left"


def test_write_with_an_older_token_is_refused(pods):
    job, carrier = next(iter(JOBS.values())), min(ROLES)
    pods.store.add(job, 0, 1, token=GREATER)
    pods.store.publish(carrier.removeprefix("carrier/"), carrier, token=GREATER)
    before = len(pods.store.accepted())
    pods.start("one", 0.001)
    wait_for(lambda: pods.store.done() == len(JOBS) - 1, "all jobs but one")
    wait_for(lambda: {row[0] for row in pods.store.refused()} == {job.id, carrier}, "refusals")
    assert not {job.id, carrier} & {row[0] for row in pods.store.accepted()[before:]}
    refused = [one["role"] for one in pods.events("one") if one["what"] == "refused"]
    assert set(refused) == {job.id, carrier}


def test_program_frozen_amid_its_work_writes_nothing_after_the_thaw(pods):
    """A program that thaws after its job is done writes nothing."""
    frozen = pods.start("one", 0.3)
    wait_for(lambda: pods.carriers("one") == ROLES, "all carriers")
    wait_for(lambda: pods.events("one")[-1]["what"] == "working", "work")
    frozen.send_signal(signal.SIGSTOP)
    last = [one for one in pods.events("one") if one["what"] == "working"][-1]
    pods.start("two", 0.001)
    wait_for(lambda: pods.carriers("two") == ROLES, "the carriers of the frozen one")
    wait_for(lambda: pods.store.done() == len(JOBS), "the last job")
    frozen.send_signal(signal.SIGCONT)
    wait_for(lambda: pods.carriers("one") < ROLES, "it has noticed")
    time.sleep(1.0)  # for a late write
    assert pods.store.position(last["role"]) == len(JOBS[last["role"]].delays)
    assert pods.store.refused() == [], "only the token kept it from writing"
    assert checks.stale_accepted(pods.store.accepted()) == []
    assert checks.wrong_totals(pods.store.totals(), plain_totals(DAY)) == []
