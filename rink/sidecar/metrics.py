"""Show a sidecar to Prometheus, without names of roles."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from rink import _member_internals
from rink.sidecar.membership import Membership
from rink.sidecar.public import PublicHandler
from rink.sidecar.service import Service


def exposition_of(collector: Collector) -> PublicHandler:
    """Return a call that shows the metrics of a collector."""
    registry = CollectorRegistry()
    registry.register(collector)

    async def metrics(_: Request) -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return metrics


@attrs.frozen
class SidecarMetrics(Collector):
    """Show a sidecar to Prometheus."""

    _service: Service
    _membership: Membership

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        service, rink = self._service, self._membership.rink
        turns = list(service.turns.turns())
        draining = sum(1 for turn in turns if turn.lost_at_ms is not None)
        remaining_s = (self._membership.session()[1] - service.clock()) / 1000 if rink else 0.0
        rank = rink.rank if rink else None
        members = _member_internals.member_count_of(rink) if rink else 0
        version = rink.version if rink else None
        gauges: tuple[tuple[str, str, float], ...] = (
            ("joined", "1 while the member is in the group.", float(rink is not None)),
            ("ranked", "1 while the member has a rank.", float(rank is not None)),
            ("rank", "The member's rank, -1 without one.", -1 if rank is None else rank),
            ("members", "Live members of the group.", members),
            ("version", "Number of the newest version.", version.number if version else 0),
            ("roles_held", "Roles that consumers hold.", len(turns) - draining),
            ("roles_draining", "Roles that consumers must give up.", draining),
            (
                "session_remaining_seconds",
                "Seconds until the member's deadline.",
                max(0.0, remaining_s),
            ),
            ("consumers", "Consumers that hold roles or wait.", len(service.turns.consumers)),
        )
        for name, what, value in gauges:
            yield GaugeMetricFamily(f"rink_sidecar_{name}", what, value)
        grants, losses = service.grants_told, service.losses_told
        yield CounterMetricFamily(
            "rink_sidecar_roles_gained", "Grants reported to consumers.", grants
        )
        yield CounterMetricFamily(
            "rink_sidecar_roles_lost", "Losses reported to consumers.", losses
        )
