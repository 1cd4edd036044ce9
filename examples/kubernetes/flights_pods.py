"""Process the flights in the pods of two Deployments.

The Deployments are rolled while their pods work.

    python -m flights_pods prepare    make the store; the init container of each pod
    python -m flights_pods process    work until SIGTERM; the container of each pod
    python -m flights_pods check      wait for the last flight, then judge; a Job

The work, the store and the judge are those of `examples/flights.py`. The pods of the other
Deployment do the same work in Go, beside the sidecar: see `go/`. The folder that all pods share is
named by FLIGHTS_DIRECTORY, and the manifests set the rest of the environment.
"""

import argparse
import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from common.events import Event, EventLog, Tail
from common.flights_file import ALL_YEAR
from flights_demo import checks
from flights_demo.data import Job, make_jobs, plain_totals, read_flights
from flights_demo.processor import Processor
from flights_demo.report import faults_of_rink, faults_of_the_work
from flights_demo.store import Store

import rink

PROGRAMS = ("go", "python")
CHECK_TIMEOUT_S = 1800.0
CHECK_INTERVAL_S = 1.0

Report = dict[str, Any]


def folder() -> Path:
    """Return the folder that all pods share."""
    return Path(os.environ["FLIGHTS_DIRECTORY"])


def prepare() -> None:
    """Make the store with every job in it, unless another pod has made it.

    The programs in Go read the jobs from `jobs.json`.
    """
    here = folder()
    for name in ("events", "ready"):
        (here / name).mkdir(exist_ok=True)
    with (here / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (here / "store.db").exists():
            return
        jobs = make_jobs(read_flights())
        delays = {name: job.delays for name, job in jobs.items()}
        (here / "jobs.json").write_text(json.dumps(delays))
        new = here / "new.db"
        new.unlink(missing_ok=True)
        with contextlib.closing(Store(new)) as store:
            store.create(jobs.values(), open_until=ALL_YEAR)
        new.rename(here / "store.db")  # only a whole store has this name


def process() -> None:
    """Join the group, work, and leave it at the first SIGTERM."""
    name = os.environ["POD_NAME"]
    ready = folder() / "ready" / name
    ready.unlink(missing_ok=True)  # of a container that was restarted
    jobs = make_jobs(read_flights())  # loaded before joining: a member can work at once
    with (
        contextlib.closing(EventLog(folder() / "events", name)) as events,
        contextlib.closing(Store(folder() / "store.db", name)) as store,
        rink.Session(ttl=float(os.environ["RINK_TTL"])) as session,
    ):
        r = rink.Rink(
            session,
            os.environ["RINK_GROUP"],
            name=name,
            labels={"revision": os.environ["POD_REVISION"]},
            handover_wait=float(os.environ["RINK_HANDOVER_WAIT"]),
        )
        processor = Processor(r, store, events, float(os.environ["FLIGHTS_PACE"]))
        signal.signal(signal.SIGTERM, lambda *_: processor.stopping.set())
        with r:
            events.write("revision", revision=os.environ["POD_REVISION"], program="python")
            ready.touch()
            processor.serve(jobs)
        events.write("left")


def check() -> int:
    """Wait until every flight is counted; compare; return the exit status."""
    jobs = make_jobs(read_flights())
    with contextlib.closing(Store(folder() / "store.db")) as store:
        deadline = time.monotonic() + CHECK_TIMEOUT_S
        while (done := store.done()) < len(jobs):
            if time.monotonic() > deadline:
                print(f"only {done:,} of {len(jobs):,} jobs are done", file=sys.stderr)
                return 1
            time.sleep(CHECK_INTERVAL_S)
        report = build(Tail(folder() / "events").new(), store, jobs)
    print(json.dumps(report, indent=2))
    return 0 if report["ok"] else 1


def build(history: list[Event], store: Store, jobs: dict[str, Job]) -> Report:
    """Return what came out, from what the pods wrote down and from the store."""
    expected, totals, accepted = plain_totals(read_flights()), store.totals(), store.accepted()
    held = checks.holdings(history)
    faults = faults_of_rink(history, held, accepted, ttl=20)  # no pod was frozen or killed
    faults |= faults_of_the_work(store, accepted, totals, expected)
    faults["no roll while there was work"] = missing_roll(history, accepted)
    moves = moves_in_roll(history, held)
    return {
        "ok": not any(faults.values()),
        "faults": {name: found[:3] for name, found in faults.items()},
        "flights": asdict(checks.grand_total(totals)),
        "expected": asdict(checks.grand_total(expected)),
        "jobs": len(jobs),
        "jobs_by_revision": jobs_by_revision(history),
        "moves_per_carrier": {
            "mean": round(sum(moves.values()) / max(len(moves), 1), 2),
            "most": max(moves.values(), default=0),
        },
    }


def revisions(history: list[Event]) -> dict[str, str]:
    """Return the revision of each pod, the oldest pod first."""
    return {one["member"]: one["revision"] for one in history if one["what"] == "revision"}


def missing_roll(history: list[Event], accepted: list) -> list[str]:
    """Return the programs that were not rolled while they worked, in words.

    Each program has two revisions, and both must have worked.
    """
    known = revisions(history)
    programs = {one["revision"]: one["program"] for one in history if one["what"] == "revision"}
    worked = {known[member] for _, _, member, first, _ in accepted if first is not None}
    found = []
    for program in PROGRAMS:
        ran = {revision for revision, its in programs.items() if its == program}
        if len(ran) != 2 or not ran <= worked:
            found.append(
                f"revisions in {program} that ran: {len(ran)}, that worked: {len(ran & worked)}"
            )
    return found


def jobs_by_revision(history: list[Event]) -> dict[str, int]:
    """Return how many jobs the pods of each revision have finished."""
    known = revisions(history)
    finished = dict.fromkeys(known.values(), 0)
    for event in history:
        if event["what"] == "done":
            finished[known[event["member"]]] += 1
    return finished


def moves_in_roll(history: list[Event], held: list[checks.Holding]) -> dict[str, int]:
    """Return how often each carrier's role has moved since the roll began.

    The roll begins when the first pod of a second revision joins, or the first pod leaves.
    """
    oldest: dict[str, str] = {}
    begins = []
    for event in history:
        if event["what"] == "revision":
            if oldest.setdefault(event["program"], event["revision"]) != event["revision"]:
                begins.append(event["at"])
        elif event["what"] == "leaving":
            begins.append(event["at"])
    carriers = (one for one in held if one.role.startswith("carrier/"))
    return checks.moves_in_deploy(carriers, [(min(begins, default=float("inf")), "deploy")])


COMMANDS = {"prepare": prepare, "process": process, "check": check}


def main() -> int:
    """Run one of the commands."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("command", choices=COMMANDS)
    return COMMANDS[parser.parse_args().command]() or 0


if __name__ == "__main__":
    sys.exit(main())
