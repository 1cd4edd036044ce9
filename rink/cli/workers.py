"""Run an app's processors until SIGTERM or Ctrl-C: `rink worker`."""

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


def _names(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> list[str] | None:
    names = [name.strip() for text in values for name in text.split(",") if name.strip()]
    if values and not names:
        raise click.BadParameter("no processor is named")
    return list(dict.fromkeys(names)) or None


@click.command(short_help="Run the processors of an app.")
@apps.with_app
@click.option(
    "--processors",
    multiple=True,
    callback=_names,
    metavar="A,B",
    help="Run only these. May be given more than once.  [default: all of the app]",
)
@with_name("the groups")
@with_leave("a worker that takes over; this worker processes meanwhile")
@click.option(
    "--metrics-port",
    metavar="PORT",
    type=click.IntRange(0, 65535),
    help="Serve metrics for Prometheus and /readyz at this port; 0 is any free port.",
)
@click.option(
    "--metrics-host", metavar="HOST", default="127.0.0.1", help="The address of the metrics."
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

    MODULE:ATTR names the app, such as shop:app. At the end the worker leaves in order: each
    partition passes to another worker once its in-flight events are committed. A second signal ends
    a wait for the worker that takes over. The next signal ends the process at once.
    """
    if _LAST is _exit:  # to load the app may take seconds, before the worker sets its handlers
        signal.signal(signal.SIGTERM, _exit)
    loaded_app = apps.load(app)
    from rink.streams import Worker

    log_to_stderr(log_level)
    worker = Worker(loaded_app, processors, name=name, handover_wait=handover_wait)
    kubernetes.check_grace(worker.leaves_within_s, termination_grace)
    if metrics_port is not None:
        _serve_metrics(worker, metrics_host, metrics_port)
    gc.collect()
    gc.freeze()  # full collections then scan only events, and not every module
    apps.run(loaded_app, lambda: _run_until_signal(worker))


async def _run_until_signal(worker: Worker) -> None:
    """Run a worker until a signal makes it leave.

    The first signal begins to leave. If the worker then waits for a successor, the second signal
    ends this wait. The last signal ends the process.

    The handlers are Python's own. Handlers of the event loop would wait for the loop, and a
    processor may keep the loop busy. Even then, the last signal must end the process.
    """
    loop = asyncio.get_running_loop()

    def set_handlers(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
        for number in _ENDS:
            signal.signal(number, handler)

    def leave(number: int, _: FrameType | None) -> None:
        set_handlers(hurry if worker.handover_wait else _LAST)
        loop.call_soon_threadsafe(_leave, worker, signal.Signals(number).name)

    def hurry(number: int, _: FrameType | None) -> None:
        set_handlers(_LAST)
        loop.call_soon_threadsafe(_hurry, worker, signal.Signals(number).name)

    before = {number: signal.signal(number, leave) for number in _ENDS}
    try:
        log.info("worker %s of app %r starts", worker.name, worker.app.name)
        await worker.run()
        log.info("worker %s has left", worker.name)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _exit(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)


_LAST = _exit if os.getpid() == 1 else signal.SIG_DFL
"""The handler that ends the process at a signal.

In process 1 of a container, the system's default handler does nothing.
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
    from prometheus_client import REGISTRY, CollectorRegistry, make_wsgi_app, start_http_server

    both = CollectorRegistry()
    both.register(REGISTRY)
    both.register(worker.metrics.registry)
    try:
        server, _ = start_http_server(port, addr=host, registry=both)
    except OSError as error:
        raise Failed(f"cannot serve metrics at {host}:{port}: {error.strerror}") from error
    server.set_app(_with_readiness(make_wsgi_app(both), worker))
    log.info("metrics are at http://%s:%d/metrics", host, server.server_port)


def _with_readiness(metrics: WSGIApplication, worker: Worker) -> WSGIApplication:

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] != "/readyz":
            return metrics(environ, start_response)
        is_ready = worker.is_ready
        status = "200 OK" if is_ready else "503 Service Unavailable"
        start_response(status, [("Content-Type", "text/plain")])
        return [b"ready\n" if is_ready else b"not joined, or without a live session\n"]

    return answer
