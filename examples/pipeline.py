"""A year of flights through Spark: two drivers, one query; one is killed in mid-batch, one frozen in mid-batch.

Flights flow through a stream of `rink.streams` into a streaming query that adds up delays by day, carrier, airport and
weather. Two drivers compete for the role of running it. At the end the totals in Redis and in Parquet are compared
with one plain pass over the file. Exit status 0: equal, nothing doubled, nothing stale; 1: not so.

The code to read is pipeline_demo/query.py (the work) and pipeline_demo/driver.py (the role).
"""

import argparse
import sys
from pathlib import Path

from flights_demo.data import ALL_YEAR
from flights_demo.entry import present
from pipeline_demo import page, report
from pipeline_demo.here import Here
from pipeline_demo.orchestrate import Demo, DemoError, Settings
from pipeline_demo.plain import plain_pass
from pipeline_demo.scene import make_show
from rich.console import Console

from rink.testing import local_etcd
from rink.testing.redis_server.local import local_redis

QUICK_MONTHS, QUICK_BATCHES = 2, 9


def main() -> int:
    told = parse_arguments()

    def run(directory: Path, console: Console) -> report.Report:
        settings = Settings(
            directory=directory,
            seconds=told.seconds,
            ttl=told.ttl,
            months=told.months,
            batches=told.batches,
            master=told.master,
            careless=told.careless,
        )
        written = told.report or (directory / "report.html" if told.keep else None)
        return carry_out(settings, written, console)

    return present(told, run, report.show, folder="rink-spark-", kept="Notes, files and page")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--seconds", type=float, default=20, help="how long the flights are sent for"
    )
    parser.add_argument("--months", type=int, default=ALL_YEAR, help="take only the first months")
    parser.add_argument("--batches", type=int, default=16, help="into about how many they are cut")
    parser.add_argument("--quick", action="store_true", help="two months, in fewer batches")
    parser.add_argument(
        "--ttl", type=float, default=5, help="seconds a silent driver keeps the query"
    )
    parser.add_argument(
        "--master", default=Here.master, help="a Spark cluster on this machine, spark://HOST:PORT"
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write the page with plots there"
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument("--keep", action="store_true", help="keep notes, files and page")
    # Shows that the checks notice it when nothing is fenced and no batch is known again.
    parser.add_argument("--careless", action="store_true", help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.quick:
        told.seconds, told.months, told.batches = 10, QUICK_MONTHS, QUICK_BATCHES
    if not 1 <= told.months <= ALL_YEAR:
        parser.error(f"--months must be 1 to {ALL_YEAR}")
    return told


def carry_out(settings: Settings, written: Path | None, console: Console) -> report.Report:
    expected = plain_pass(settings.months)
    count = int(expected.flights.sum())
    with local_etcd() as etcd, local_redis() as redis, make_show(console) as display:
        here = Here(
            folder=str(settings.directory),
            redis=redis.url,
            etcd=etcd.endpoint,
            ttl=str(settings.ttl),
            rows=str(-(-count // settings.batches)),
            master=settings.master,
            careless="yes" if settings.careless else "",
        )
        demo = Demo(settings, here, count, display)
        unfinished = ""
        try:
            try:
                demo.run()
            except DemoError as error:
                unfinished = str(error)  # what was seen until then may well say why
            seen = demo.evidence(expected, unfinished)
        finally:
            demo.close()
    found = report.build(seen)
    if written:
        page.write(written, found, seen)
        found["page"] = str(written)
    return found


if __name__ == "__main__":
    sys.exit(main())
