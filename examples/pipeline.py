"""Run flights through Spark, with one driver killed and one frozen.

Flights flow through a stream of `rink.streams` into a streaming query that adds up delays by day,
carrier, airport and weather. Two drivers compete for the role of running it. One is killed and one
frozen, each in mid-batch. At the end the totals in Redis and in Parquet are compared with one plain
pass over the file. Exit status 0: equal, nothing doubled, nothing stale; 1: not so.

The code to read is pipeline_demo/query.py (the work) and pipeline_demo/driver.py (the role).
"""

import argparse
import sys
from contextlib import closing
from pathlib import Path

from common.display import make_display
from common.entry import parse, parser_of, present
from pipeline_demo import page, report, scene
from pipeline_demo.here import DriverHere
from pipeline_demo.orchestrate import Demo, Settings
from pipeline_demo.plain import plain_pass
from rich.console import Console

from rink.testing import local_etcd
from rink.testing.redis_server.local import local_redis


def main() -> int:
    return present(
        parse_arguments(),
        Settings,
        carry_out,
        report.show,
        folder="rink-spark-",
        kept="Notes, files and page",
    )


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(
        __doc__,
        seconds=20,
        flow="the flights are sent for",
        ttl=5,
        member="driver keeps the query",
        quick="two months, in fewer batches",
        keep="notes, files and page",
    )
    parser.add_argument("--batches", type=int, default=16, help="into about how many they are cut")
    parser.add_argument(
        "--master",
        default=DriverHere.master,
        help="a Spark cluster on this machine, spark://HOST:PORT",
    )
    parser.add_argument(
        "--report", type=Path, metavar="FILE", help="write the page with plots there"
    )
    # Shows that the checks notice it when nothing is fenced and no batch is known again.
    parser.add_argument("--careless", action="store_true", help=argparse.SUPPRESS)
    return parse(parser, seconds=10, months=2, batches=9)


def carry_out(settings: Settings, console: Console) -> report.Report:
    expected = plain_pass(settings.months)
    count = int(expected.flights.sum())
    with (
        local_etcd() as etcd,
        local_redis() as redis,
        make_display(console, scene.draw, scene.progress_line) as display,
    ):
        here = DriverHere(
            folder=str(settings.directory),
            redis=redis.url,
            etcd=etcd.endpoint,
            ttl=str(settings.ttl),
            rows=str(-(-count // settings.batches)),
            master=settings.master,
            careless="yes" if settings.careless else "",
        )
        with closing(Demo(settings, here, count, display)) as demo:
            unfinished = demo.run_to_the_end()
            seen = demo.evidence(expected, unfinished)
    result = report.build(seen)
    if path := settings.page_path:
        page.write(path, result, seen)
        result["page"] = str(path)
    return result


if __name__ == "__main__":
    sys.exit(main())
