"""Share 336,776 flights through a deploy, a freeze and a kill.

Three processes share them. Every job (one carrier on one day) is a role. Rink decides which
processor has it, and a small store refuses every write with a stale token. At the end the totals
are compared with those of one plain pass over the file. Exit status 0: equal, and nothing
overlapped; 1: not so.

The code to read is flights_demo/processor.py (the work) and flights_demo/store.py (the fence).
"""

import argparse
import sys
from contextlib import closing

from common.display import make_display
from common.entry import add_seed, parse, parser_of, present
from flights_demo import report, scene
from flights_demo.data import make_jobs, plain_totals, read_flights
from flights_demo.orchestrate import Demo, Settings
from rich.console import Console

from rink.testing import local_etcd


def main() -> int:
    return present(
        parse_arguments(),
        Settings,
        carry_out,
        report.show,
        folder="rink-flights-",
        kept="Event files and store",
    )


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(
        __doc__,
        seconds=45,
        flow="the work should last",
        ttl=3,
        member="member keeps its roles",
        quick="three months in fifteen seconds",
        keep="the event files and the store",
    )
    add_seed(parser)
    # Shows that the checks notice it when the store accepts stale writes.
    parser.add_argument("--no-fence", dest="fence", action="store_false", help=argparse.SUPPRESS)
    return parse(parser, fewest_months=3, seconds=15, months=3)


def carry_out(settings: Settings, console: Console) -> report.Report:
    expected = plain_totals(read_flights(settings.months))
    jobs = make_jobs(read_flights(settings.months))
    with (
        local_etcd() as etcd,
        make_display(console, scene.draw, scene.progress_line) as display,
        closing(Demo(settings, etcd.endpoint, jobs, display)) as demo,
    ):
        unfinished = demo.run_to_the_end()
        return report.build(
            demo.history, demo.store, expected, ttl=settings.ttl, unfinished=unfinished
        )


if __name__ == "__main__":
    sys.exit(main())
