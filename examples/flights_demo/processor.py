"""Run one processor: a member that does the jobs of its roles.

`python -m flights_demo.processor --help` lists the options that the demo gives it.
"""

import argparse
import signal
import threading
import time
from pathlib import Path

from common.events import EventLog
from common.here import at_the_demos_end

import rink
from flights_demo.data import CHUNK, Job, carrier_role, make_jobs, read_flights
from flights_demo.store import StaleWrite, Store

LIST_INTERVAL_S = 1.0  # after which the list of pending jobs is old
PUBLISH_INTERVAL_S = 0.5


class Processor:
    def __init__(self, r: rink.Rink, store: Store, events: EventLog, pace: float) -> None:
        self.rink = r
        self.store = store
        self.events = events
        self.pace = pace
        self.stopping = threading.Event()

    def run(self, jobs: dict[str, Job]) -> None:
        """Do every job whose role is ours, until `stopping` is set."""
        while not self.stopping.is_set():
            pending = self.store.pending()
            self.pass_over([jobs[job_id] for job_id in pending])
            if not pending:
                self.stopping.wait(0.1)

    def pass_over(self, pending: list[Job]) -> None:
        done, until = 0, time.monotonic() + LIST_INTERVAL_S
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
            self.stopping.wait(0.05)  # other processors have all of these roles

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
        """Keep a carrier's line on the board, under its long-held role."""
        self.events.write("granted", role=role.name, token=role.token)
        try:
            while not role.lost.is_set():
                self.store.publish(carrier, role.name, token=role.token)
                role.lost.wait(PUBLISH_INTERVAL_S)
        except StaleWrite as stale:
            self.events.write("refused", role=role.name, token=role.token, why=str(stale))
        finally:
            self.events.write("released", role=role.name, token=role.token)

    def serve(self, jobs: dict[str, Job]) -> None:
        """Do jobs and keep the carriers' lines until `stopping` is set."""
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
    options = parser.parse_args()

    # Load before joining, so that a member can work at once.
    jobs = make_jobs(read_flights(options.months))
    events = EventLog(options.directory / "events", options.name)
    store = Store(options.directory / "store.db", options.name, check_fence=not options.no_fence)
    with (
        rink.Session(options.endpoint, ttl=options.ttl) as session,
        rink.Rink(
            session,
            options.group,
            name=options.name,
            rebalance_delay=options.rebalance_delay,
        ) as r,
    ):
        processor = Processor(r, store, events, options.pace)
        signal.signal(signal.SIGTERM, lambda *_: processor.stopping.set())
        at_the_demos_end(processor.stopping.set)
        processor.serve(jobs)
        # The end of the `with` leaves: the carriers' roles go on until a successor waits for them.
    events.write("left")
    store.close()


if __name__ == "__main__":
    main()
