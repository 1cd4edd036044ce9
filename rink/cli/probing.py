"""Answer probes and show metrics for `rink run`, as the sidecar does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from functools import partial

import attrs
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rink.run.supervisor import Beside, CommandSupervisor
from rink.sidecar.listeners import Address, listen, serve
from rink.sidecar.metrics import exposition_of
from rink.sidecar.public import LoopLag, application

log = logging.getLogger("rink.run")


@attrs.frozen
class RunMetrics(Collector):
    """Export the metrics of a `rink run`, without names of roles."""

    _supervisor: CommandSupervisor

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        now = self._supervisor
        yield GaugeMetricFamily(
            "rink_run_joined", "1 while the member is in the group.", now.is_joined
        )
        yield GaugeMetricFamily("rink_run_running", "1 while the command runs.", now.is_running)
        yield GaugeMetricFamily(
            "rink_run_session_remaining_seconds",
            "Seconds until the member's deadline.",
            now.remaining_s,
        )
        yield CounterMetricFamily("rink_run_starts", "Starts of the command.", now.starts)


def prober(address: str, margin: float) -> Beside:
    """Listen at an address, and return the coroutine that serves there.

    The event loop counts as unhealthy if its lag is `margin` seconds or more.

    Raises:
        ConfigError: the address is taken, or cannot be used.
    """
    probes = Address.of_probes(address)
    listener = listen(probes)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # otherwise it logs its own start

    async def beside(supervisor: CommandSupervisor) -> None:
        lag = LoopLag()
        metrics = exposition_of(RunMetrics(supervisor))
        port = listener.getsockname()[1]
        log.info("probes and metrics are at http://%s", attrs.evolve(probes, port=port))
        app = application(supervisor.why_not_ready, partial(lag.why_late, margin), metrics)
        await asyncio.gather(lag.run(), serve(app, listener, asyncio.Event()))

    return beside
