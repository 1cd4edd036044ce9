"""Process flights as a stream through deploy, freeze and kill -9.

The stream has 16 partitions and three workers. Two processors compute each aircraft's running delay
and its longest chain of late legs. One commits its outputs and its offset in one step, the other
writes to a ledger elsewhere. At the end every output state is compared with one plain pass over the
file. Exit status 0: equal, in order, nothing lost, nothing doubled; 1: not so.

The code to read is streams_demo/app.py (the work) and streams_demo/ledger.py (the fence elsewhere).
"""

import argparse
import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import closing

from common.display import make_display
from common.entry import add_seed, parse, parser_of, present
from rich.console import Console
from streams_demo import report, scene
from streams_demo.here import WorkerHere
from streams_demo.legs import plain_pass, read_legs
from streams_demo.orchestrate import Demo, Settings

from rink.testing import local_etcd
from rink.testing.redis_server.local import local_redis, redis_cluster


def main() -> int:
    return present(
        parse_arguments(),
        Settings,
        carry_out,
        report.show,
        folder="rink-streams-",
        kept="Notes and ledger",
    )


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(
        __doc__,
        seconds=45,
        flow="the flights should flow",
        ttl=3,
        member="worker keeps its partitions",
        quick="three months in fifteen seconds",
        keep="the notes and the ledger",
    )
    add_seed(parser)
    parser.add_argument("--cluster", action="store_true", help="on a Redis Cluster of three nodes")
    # Shows that the checks notice it when outputs and offset go in two steps, without a fence.
    parser.add_argument("--careless", action="store_true", help=argparse.SUPPRESS)
    return parse(parser, seconds=15, months=3)


def carry_out(settings: Settings, console: Console) -> report.Report:
    expected = plain_pass(read_legs(settings.months))
    with (
        local_etcd() as etcd,
        running_redis(settings.cluster) as url,
        make_display(console, scene.draw, scene.progress_line) as display,
    ):
        here = WorkerHere(
            folder=str(settings.directory),
            redis=url,
            cluster="yes" if settings.cluster else "",
            etcd=etcd.endpoint,
            ttl=str(settings.ttl),
            careless="yes" if settings.careless else "",
        )
        os.environ.update(here.variables())
        from streams_demo.app import app  # only now: it takes its settings from the environment

        legs = sum(map(len, expected.values()))
        with closing(Demo(settings, here, app, legs, display)) as demo:
            unfinished = demo.run_to_the_end()
            return report.build(demo.evidence(expected, unfinished))


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
