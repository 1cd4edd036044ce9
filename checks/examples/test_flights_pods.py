"""The judge of the flights on Kubernetes finds what it is there for."""

import contextlib

import flights_pods
import pytest
from flights_demo import checks
from flights_demo.data import ALL_YEAR, CHUNK, make_jobs, read_flights
from flights_demo.store import Store

CARRIER = "carrier/UA"


@pytest.fixture(scope="module")
def jobs():
    """All jobs of the first day: the whole year takes long to write."""
    return {name: job for name, job in make_jobs(read_flights(1)).items() if job.day == 1}


@pytest.fixture
def judged(tmp_path, jobs, monkeypatch):
    """Return the report of a count that lacks the flights of some jobs."""
    day = [one for one in read_flights(1) if one.day == 1]
    monkeypatch.setattr(flights_pods, "read_flights", lambda: day)

    def judge(history, *, left_out=(), twice=(), both=True):
        with contextlib.closing(Store(tmp_path / "store.db", "old")) as store:
            store.create(jobs.values(), open_until=ALL_YEAR)
            for number, (name, job) in enumerate(jobs.items()):
                store.member = "new" if both and number % 2 else "old"
                for first in range(0, len(job.delays), CHUNK):
                    count = min(CHUNK, len(job.delays) - first)
                    for _ in range(0 if name in left_out else 2 if name in twice else 1):
                        store.add(job, first, count, token=1)
            return flights_pods.build(history, store, jobs)

    return judge


def event(at, member, what, **facts):
    return {"at": at, "member": member, "what": what, **facts}


def rolled(*holders):
    """Return the history of a roll in which the carrier's role has these holders in turn."""
    history = [event(0, "old", "revision", revision="1"), event(5, "new", "revision", revision="2")]
    for number, holder in enumerate(holders):
        at = 1 if number == 0 else 10 + number
        history.append(event(at, holder, "granted", role=CARRIER, token=number + 1))
        ends = 10.9 + number
        history.append(event(ends, holder, "released", role=CARRIER, token=number + 1))
    return sorted(history, key=lambda one: one["at"])


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


def test_roll_without_work_is_found(judged):
    assert judged(rolled("old", "new"), both=False)["faults"]["no roll while there was work"]


def test_work_without_a_roll_is_found(judged):
    history = [event(0, name, "revision", revision="1") for name in ("old", "new")]
    report = judged(history)
    (found,) = report["faults"]["no roll while there was work"]
    assert found == "revisions that ran: 1, that worked: 1"


def test_role_that_moves_more_than_once_is_counted():
    history = rolled("old", "new", "old", "new")
    assert flights_pods.moves_in_roll(history, checks.holdings(history)) == {CARRIER: 3}


def test_moves_before_the_roll_are_not_counted():
    history = [
        event(0, "old", "revision", revision="1"),
        event(0, "older", "revision", revision="1"),
        event(1, "old", "granted", role=CARRIER, token=1),
        event(2, "old", "released", role=CARRIER, token=1),
        event(3, "older", "granted", role=CARRIER, token=2),
        event(9, "older", "released", role=CARRIER, token=2),
        event(9, "new", "revision", revision="2"),
        event(10, "new", "granted", role=CARRIER, token=3),
    ]
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
        assert sum(store.sizes().values()) == 500
