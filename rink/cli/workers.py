"""`rink worker`: run an app's processors until it is told to leave."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING

import click

from rink.cli import apps, kubernetes
from rink.cli.exit_status import Failed
from rink.cli.joining import log_to_stderr, with_leave, with_log_level, with_name

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from rink.streams import Worker

log = logging.getLogger("rink.streams")

_ENDS = (signal.SIGTERM, signal.SIGINT)


def _names(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> list[str] | None:
    """Take names separated by commas, and the option more than once."""
    found = [name.strip() for one in given for name in one.split(",") if name.strip()]
    if given and not found:
        raise click.BadParameter("no processor is named")
    return list(dict.fromkeys(found)) or None


@click.command(short_help="Run the processors of an app.")
@apps.with_app
@click.option(
    "--processors",
    multiple=True,
    callback=_names,
    metavar="A,B",
    help="Only these; may be given more than once.  [default: all of the app's]",
)
@with_name("the groups")
@with_leave("a worker that takes over; this one processes meanwhile")
@click.option(
    "--metrics-port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="Serve metrics for Prometheus at this port, and /readyz; 0 is any free one.",
)
@click.option(
    "--metrics-host",
    metavar="HOST",
    default="127.0.0.1",
    show_default=True,
    help="The address that metrics are served at.",
)
@with_log_level("It has no effect if the app's module sets up logging.")
def worker(
    app: str,
    processors: list[str] | None,
    name: str | None,
    handover_wait: float,
    termination_grace: float | None,
    metrics_port: int | None,
    metrics_host: str,
    log_level: str,
) -> None:
    """Run the processors of an app until SIGTERM or Ctrl-C.

    MODULE:ATTR names the app, such as shop:app. At the end it leaves in order: each partition
    passes to another worker once its in-flight events are committed. While it waits for a worker
    that takes over, a second signal ends that wait. The next signal ends the process at once.
    """
    if _LAST is _exit:  # until the worker runs, since to load the app may take seconds
        signal.signal(signal.SIGTERM, _exit)
    found = apps.load(app)
    from rink.streams import Worker

    log_to_stderr(log_level)
    made = Worker(found, processors, name=name, handover_wait=handover_wait)
    kubernetes.check_grace(made.leaves_within_s, termination_grace)
    if metrics_port is not None:
        _serve_metrics(made, metrics_host, metrics_port)
    gc.collect()
    gc.freeze()  # full collections then go through events alone, and not through every module
    apps.run(found, lambda: _until_told(made))


async def _until_told(worker: Worker) -> None:
    """Run a worker, and leave as signals say.

    The first signal begins to leave. If the worker then waits for a successor, the second one ends
    that wait. The last one ends the process.

    The handlers are Python's own. Handlers of the event loop would wait for the loop, and a
    processor may keep the loop busy. The last signal must end the process then, too.
    """
    loop = asyncio.get_running_loop()

    def set_handlers(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
        for one in _ENDS:
            signal.signal(one, handler)

    def leave(number: int, _: FrameType | None) -> None:
        set_handlers(hurry if worker.handover_wait else _LAST)
        loop.call_soon_threadsafe(_leave, worker, signal.Signals(number).name)

    def hurry(number: int, _: FrameType | None) -> None:
        set_handlers(_LAST)
        loop.call_soon_threadsafe(_hurry, worker, signal.Signals(number).name)

    before = {one: signal.signal(one, leave) for one in _ENDS}
    try:
        log.info("worker %s of app %r begins", worker.name, worker.app.name)
        await worker.run()
        log.info("worker %s has left", worker.name)
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _exit(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)


_LAST = _exit if os.getpid() == 1 else signal.SIG_DFL
"""End the process at a signal.

For process 1 of a container, the system's default does nothing.
"""


def _leave(worker: Worker, name: str) -> None:
    if worker.handover_wait:
        log.info(
            "%s: worker %s is leaving; waits up to %g s for a successor; "
            "a second signal ends the wait",
            name,
            worker.name,
            worker.handover_wait,
        )
    else:
        log.info("%s: worker %s is leaving; a second signal ends it at once", name, worker.name)
    worker.stop()


def _hurry(worker: Worker, name: str) -> None:
    log.info(
        "%s: worker %s waits for no successor; another signal ends it at once", name, worker.name
    )
    worker.stop(now=True)


def _serve_metrics(worker: Worker, host: str, port: int) -> None:
    """Serve the metrics of the worker, the process and the app."""
    from prometheus_client import (
        REGISTRY,
        CollectorRegistry,
        make_wsgi_app,
        start_http_server,
    )

    both = CollectorRegistry()
    both.register(REGISTRY)
    both.register(worker.metrics.registry)
    try:
        server, _ = start_http_server(port, addr=host, registry=both)
    except OSError as error:
        raise Failed(f"metrics cannot be served at {host}:{port}: {error.strerror}") from error
    server.set_app(_with_readiness(make_wsgi_app(both), worker))
    log.info("metrics are at http://%s:%d/metrics", host, server.server_port)


def _with_readiness(metrics: WSGIApplication, worker: Worker) -> WSGIApplication:
    """Return the application of the metrics, with readiness at /readyz."""

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/readyz":
            return metrics(environ, start_response)
        is_ready = worker.is_ready
        status = "200 OK" if is_ready else "503 Service Unavailable"
        start_response(status, [("Content-Type", "text/plain")])
        return [b"ready\n" if is_ready else b"not joined, or without a live session\n"]

    return answer
