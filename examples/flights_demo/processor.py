"""One processor: the second example of Rink's first README, as a process of its own.

`python -m flights_demo.processor --help` lists what it is told by the demo.
"""

import argparse
import os
import signal
import sys
import threading
import time
from pathlib import Path

import rink
from flights_demo.data import CHUNK, Job, carrier_role, make_jobs, read_flights
from flights_demo.events import EventLog
from flights_demo.store import StaleWrite, Store

LIST_AGAIN = 1.0  # seconds after which the list of pending jobs is old
PUBLISH_EVERY = 0.5


class Processor:
    def __init__(self, r: rink.Rink, store: Store, events: EventLog, pace: float) -> None:
        self.rink = r
        self.store = store
        self.events = events
        self.pace = pace
        self.stopping = threading.Event()

    def run(self, jobs: dict[str, Job]) -> None:
        """Do every job whose role is ours, until told to stop."""
        while not self.stopping.is_set():
            pending = self.store.pending()
            self.pass_over([jobs[job_id] for job_id in pending])
            if not pending:
                self.stopping.wait(0.1)

    def pass_over(self, pending: list[Job]) -> None:
        done, until = 0, time.monotonic() + LIST_AGAIN
        for job in pending:
            role = self.rink.get_role(job.id)
            if role is None:
                continue  # another processor has the role for this job now
            with role:  # only this processor works on this job now
                self.do(job, role)
            done += 1
            if self.stopping.is_set() or time.monotonic() > until:
                return
        if not done:
            self.stopping.wait(0.05)  # all of them are somebody else's

    def do(self, job: Job, role: rink.Role) -> None:
        self.events.write("granted", role=job.id, token=role.token)
        try:
            # Ask for the position only now: somebody else may have moved it until the grant.
            first = self.store.position(job.id)
            while first < len(job.delays):
                if role.lost.is_set():
                    self.events.write("lost", role=job.id, token=role.token)
                    return
                count = min(CHUNK, len(job.delays) - first)
                self.events.write("working", role=job.id, token=role.token, first=first)
                time.sleep(self.pace)  # stands for the work; a freeze hits here, after the check
                self.store.add(job, first, count, token=role.token)
                first += count
            self.events.write("done", role=job.id)
        except StaleWrite as stale:
            self.events.write("refused", role=job.id, token=role.token, why=str(stale))
        finally:
            self.events.write("released", role=job.id, token=role.token)

    def keep_board(self, carrier: str, role: rink.Role) -> None:
        """A long-lived role, one per carrier: keeps the carrier's line on the board up to date."""
        self.events.write("granted", role=role.name, token=role.token)
        try:
            while not role.lost.is_set():
                self.store.publish(carrier, role.name, token=role.token)
                role.lost.wait(PUBLISH_EVERY)
        except StaleWrite as stale:
            self.events.write("refused", role=role.name, token=role.token, why=str(stale))
        finally:
            self.events.write("released", role=role.name, token=role.token)

    def serve(self, jobs: dict[str, Job]) -> None:
        """Do jobs and keep the carriers' lines, until told to stop; for the body of the `with`."""
        threading.Thread(target=self.follow_versions, daemon=True).start()
        for carrier in sorted({job.carrier for job in jobs.values()}):
            self.rink.on_role(carrier_role(carrier))(
                lambda role, carrier=carrier: self.keep_board(carrier, role)
            )
        self.events.write("joined")
        self.run(jobs)
        self.events.write("leaving")

    def follow_versions(self) -> None:
        for version in self.rink.versions():
            self.events.write(
                "version",
                number=version.number,
                ranks=list(version.ranks),
                because=[str(cause) for cause in version.because],
            )


def stop_when_orphaned(stopping: threading.Event) -> None:
    """Stop when the demo itself is gone: its end of our standard input closes."""

    def wait_for_the_end() -> None:
        os.read(sys.stdin.fileno(), 1)  # sys.stdin itself would be locked at our exit
        stopping.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser(description="one processor of the flights demo")
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--directory", required=True, type=Path)
    parser.add_argument("--ttl", type=float, required=True)
    parser.add_argument("--rebalance-delay", type=float, required=True)
    parser.add_argument("--pace", type=float, required=True)
    parser.add_argument("--months", type=int, required=True)
    parser.add_argument("--no-fence", action="store_true")
    told = parser.parse_args()

    # Load before joining: who has joined is ready to work at once.
    jobs = make_jobs(read_flights(told.months))
    events = EventLog(told.directory / "events", told.name)
    store = Store(told.directory / "store.db", told.name, check_fence=not told.no_fence)
    with (
        rink.Session(told.endpoint, ttl=told.ttl) as session,
        rink.Rink(
            session,
            told.group,
            name=told.name,
            rebalance_delay=told.rebalance_delay,
        ) as r,
    ):
        processor = Processor(r, store, events, told.pace)
        signal.signal(signal.SIGTERM, lambda *_: processor.stopping.set())
        stop_when_orphaned(processor.stopping)
        processor.serve(jobs)
        # The end of the `with` leaves: the carriers' roles go on until a successor waits for them.
    events.write("left")
    store.close()


if __name__ == "__main__":
    main()
