"""336,776 flights, three processes, one rolling deploy, one freeze, one kill: is it all there?

Every job (one carrier on one day) is a role; Rink decides which processor has it, and a small
store refuses whatever comes with a stale token. At the end the totals are compared with those of
one plain pass over the file. Exit status 0: equal, and nothing overlapped; 1: not so.

The code to read is flights_demo/processor.py (the work) and flights_demo/store.py (the fence).
"""

import argparse
import sys
from pathlib import Path

from flights_demo import report
from flights_demo.data import make_jobs, plain_totals, read_flights
from flights_demo.display import make_display
from flights_demo.entry import parse, parser_of, present
from flights_demo.orchestrate import Demo, DemoError, Settings
from rich.console import Console

from rink.testing import local_etcd


def main() -> int:
    told = parse_arguments()

    def run(directory: Path, console: Console) -> report.Report:
        settings = Settings(
            directory=directory,
            seconds=told.seconds,
            ttl=told.ttl,
            months=told.months,
            seed=told.seed,
            fence=not told.no_fence,
        )
        return carry_out(settings, console)

    return present(told, run, report.show, folder="rink-flights-", kept="Event files and store")


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(
        __doc__,
        seconds="how long the work should last",
        ttl="seconds a silent member keeps its roles",
        keep="keep the event files and the store",
    )
    # Shows that the checks notice it when the store accepts stale writes.
    parser.add_argument("--no-fence", action="store_true", help=argparse.SUPPRESS)
    return parse(parser, fewest_months=3)


def carry_out(settings: Settings, console: Console) -> report.Report:
    expected = plain_totals(read_flights(settings.months))
    jobs = make_jobs(read_flights(settings.months))
    with local_etcd() as etcd, make_display(console) as display:
        demo = Demo(settings, etcd.endpoint, jobs, display)
        unfinished = ""
        try:
            try:
                demo.run()
            except DemoError as error:
                unfinished = str(error)  # what was seen until then may well say why
            return report.build(
                demo.history, demo.store, expected, ttl=settings.ttl, unfinished=unfinished
            )
        finally:
            demo.close()


if __name__ == "__main__":
    sys.exit(main())
