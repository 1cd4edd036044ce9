"""A year of flights as a stream: 16 partitions, three workers, a deploy, a freeze and a kill -9.

Each aircraft's running delay and its longest chain of late legs are worked out by two processors:
one whose outputs and offset go in one step, one that writes to a ledger elsewhere. At the end every
state that they put out is compared with one plain pass over the file. Exit status 0: equal, in
order, nothing lost, nothing doubled; 1: not so.

The code to read is streams_demo/app.py (the work) and streams_demo/ledger.py (the fence elsewhere).
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from flights_demo.entry import parse, parser_of, present
from rich.console import Console
from streams_demo import report
from streams_demo.here import Here
from streams_demo.legs import plain_pass, read_legs
from streams_demo.orchestrate import Demo, DemoError, Settings
from streams_demo.scene import make_show

from rink.testing import local_etcd
from rink.testing.redis_server.local import local_redis, redis_cluster


def main() -> int:
    told = parse_arguments()

    def run(directory: Path, console: Console) -> report.Report:
        settings = Settings(
            directory=directory,
            seconds=told.seconds,
            ttl=told.ttl,
            months=told.months,
            seed=told.seed,
            cluster=told.cluster,
            careless=told.careless,
        )
        return carry_out(settings, console)

    return present(told, run, report.show, folder="rink-streams-", kept="Notes and ledger")


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(
        __doc__,
        seconds="how long the flights should flow",
        ttl="seconds a silent worker keeps its partitions",
        keep="keep the notes and the ledger",
    )
    parser.add_argument("--cluster", action="store_true", help="on a Redis Cluster of three nodes")
    # Shows that the checks notice it when outputs and offset go in two steps, and nothing is fenced.
    parser.add_argument("--careless", action="store_true", help=argparse.SUPPRESS)
    return parse(parser, fewest_months=1)


def carry_out(settings: Settings, console: Console) -> report.Report:
    expected = plain_pass(read_legs(settings.months))
    with (
        local_etcd() as etcd,
        running_redis(settings.cluster) as url,
        make_show(console) as display,
    ):
        here = Here(
            folder=str(settings.directory),
            redis=url,
            cluster="yes" if settings.cluster else "",
            etcd=etcd.endpoint,
            ttl=str(settings.ttl),
            careless="yes" if settings.careless else "",
        )
        os.environ.update(here.environment())
        from streams_demo.app import app  # only now: it takes its settings from the environment

        demo = Demo(settings, here, app, sum(map(len, expected.values())), display)
        unfinished = ""
        try:
            try:
                demo.run()
            except DemoError as error:
                unfinished = str(error)  # what was seen until then may well say why
            return report.build(demo.evidence(expected, unfinished))
        finally:
            demo.close()


@contextlib.contextmanager
def running_redis(as_cluster: bool) -> Iterator[str]:
    if as_cluster:
        with redis_cluster() as cluster:
            yield cluster.urls[0]
    else:
        with local_redis() as redis:
            yield redis.url


if __name__ == "__main__":
    sys.exit(main())
