"""Test that the judge of the flights on Kubernetes finds faults."""

import contextlib
import json

import flights_pods
import pytest
from common.flights_file import ALL_YEAR
from flights_demo import checks
from flights_demo.data import CHUNK, make_jobs, read_flights
from flights_demo.store import Store

CARRIER = "carrier/UA"
PODS = {"old": "python", "new": "python", "old-go": "go", "new-go": "go"}
"""The program of each pod. The pods named old are of the first revision."""


@pytest.fixture(scope="module")
def jobs():
    """Return all jobs of the first day, since a year takes long to write."""
    return {name: job for name, job in make_jobs(read_flights(1)).items() if job.day == 1}


@pytest.fixture
def judged(tmp_path, jobs, monkeypatch):
    """Return the report of a count that lacks the flights of some jobs."""
    day = [flight for flight in read_flights(1) if flight.day == 1]
    monkeypatch.setattr(flights_pods, "read_flights", lambda: day)

    def judge(history, *, left_out=(), twice=(), idle=(), token=lambda number: 1):
        workers = [pod for pod in PODS if pod not in idle]
        with contextlib.closing(Store(tmp_path / "store.db", check_fence=False)) as store:
            store.create(jobs.values(), open_until=ALL_YEAR)
            for number, (name, job) in enumerate(jobs.items()):
                store.member = workers[number % len(workers)]
                for first in range(0, len(job.delays), CHUNK):
                    count = min(CHUNK, len(job.delays) - first)
                    for turn in range(0 if name in left_out else 2 if name in twice else 1):
                        store.add(job, first, count, token=token(turn))
            return flights_pods.build(history, store, jobs)

    return judge


def event(at, member, what, **facts):
    return {"at": at, "member": member, "what": what, **facts}


def joined(pod):
    """Return the event of a pod that joins: an old pod at 0, a new pod at 5."""
    age, program = pod.partition("-")[0], PODS[pod]
    return event(
        0 if age == "old" else 5, pod, "revision", revision=f"{program}-{age}", program=program
    )


def rolled(*holders):
    """Return the history of a roll with these holders in turn.

    They hold the carrier's role.
    """
    history = [joined(pod) for pod in PODS]
    for number, holder in enumerate(holders):
        at = 1 if number == 0 else 10 + number
        history.append(event(at, holder, "granted", role=CARRIER, token=number + 1))
        ends = 10.9 + number
        history.append(event(ends, holder, "released", role=CARRIER, token=number + 1))
    return sorted(history, key=lambda entry: entry["at"])


def test_whole_work_by_both_revisions_is_good(judged):
    report = judged(rolled("old", "new"))
    assert report["ok"], report["faults"]
    assert report["flights"] == report["expected"]
    assert report["moves_per_carrier"] == {"mean": 1.0, "most": 1}


def test_job_that_is_missing_is_found(judged, jobs):
    missing = next(iter(jobs))
    report = judged(rolled("old", "new"), left_out=[missing])
    assert not report["ok"]
    assert report["faults"]["jobs not done"] == [missing]
    assert report["faults"]["totals that differ"]


def test_chunk_that_was_counted_twice_is_found(judged, jobs):
    report = judged(rolled("old", "new"), twice=[next(iter(jobs))])
    assert report["faults"]["chunks doubled or lost"]
    assert report["faults"]["totals that differ"]


def test_chunk_with_an_older_token_is_found(judged, jobs):
    again = next(iter(jobs))
    report = judged(rolled("old", "new"), twice=[again], token=lambda turn: 2 - turn)
    (fault, *_) = report["faults"]["stale writes accepted"]
    assert fault.startswith(f"{again}: old wrote with 1 after 2")


@pytest.mark.parametrize("idle", PODS)
def test_roll_in_which_a_revision_has_no_work_is_found(judged, idle):
    (fault,) = judged(rolled("old", "new"), idle=[idle])["faults"]["no roll while there was work"]
    assert fault == f"revisions in {PODS[idle]} that ran: 2, that worked: 1"


def test_work_without_a_roll_is_found(judged):
    history = [joined(pod) for pod in PODS if pod != "new-go"]
    report = judged(history, idle=["new-go"])
    (fault,) = report["faults"]["no roll while there was work"]
    assert fault == "revisions in go that ran: 1, that worked: 1"


def test_role_that_moves_more_than_once_is_counted():
    history = rolled("old", "new", "old", "new")
    assert flights_pods.moves_in_roll(history, checks.holdings(history)) == {CARRIER: 3}


def test_moves_before_the_roll_are_not_counted():
    history = [
        joined("old"),
        joined("old-go"),
        event(1, "old", "granted", role=CARRIER, token=1),
        event(2, "old", "released", role=CARRIER, token=1),
        event(3, "old-go", "granted", role=CARRIER, token=2),
        event(9, "old-go", "released", role=CARRIER, token=2),
        joined("new"),
        event(10, "new", "granted", role=CARRIER, token=3),
    ]
    history.sort(key=lambda entry: entry["at"])
    assert flights_pods.moves_in_roll(history, checks.holdings(history)) == {CARRIER: 1}


def test_prepare_makes_the_store_once(tmp_path, monkeypatch):
    monkeypatch.setenv("FLIGHTS_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(flights_pods, "read_flights", lambda: list(read_flights(1))[:500])
    flights_pods.prepare()
    made = (tmp_path / "store.db").stat()
    flights_pods.prepare()
    assert (tmp_path / "store.db").stat().st_ino == made.st_ino
    assert not (tmp_path / "new.db").exists()
    with contextlib.closing(Store(tmp_path / "store.db")) as store:
        sizes = store.sizes()
    assert sum(sizes.values()) == 500
    delays = json.loads((tmp_path / "jobs.json").read_text())
    assert {name: len(its) for name, its in delays.items()} == sizes
