"""Count the work of a worker, for Prometheus."""

from __future__ import annotations

from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from rink.streams.store.values import CommitStep, PartitionPlace

_LABELS = ("app", "processor", "stream", "partition")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


M = TypeVar("M", bound=MetricWrapperBase)


class WorkerMetrics:
    """Hold the counters of one worker, in a registry of its own."""

    def __init__(self, app: str) -> None:
        self._app = app
        self.registry = CollectorRegistry()
        self._processed = self._counter("processed", "Events that were processed and committed.")
        self._dead = self._counter("dead", "Events that were given up.")
        self._retried = self._counter("retried", "Repeated calls of a processor after an error.")
        what = "Transient errors of a processor: no event was to blame."
        self._transient = self._counter("transient", what)
        what = "Times that an event took longer than its timeout."
        self._timeouts = self._counter("timeouts", what)
        self._commits = Histogram(
            "rink_streams_commit_seconds", "Seconds from the request of a commit to its answer.",
            _LABELS[:3], buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._handovers = Histogram(
            "rink_streams_handover_seconds",
            "Seconds from the grant of a partition to its first take.",
            _LABELS[:3], buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self._lag = self._gauge("lag", "Events that are not committed yet.")
        self._owned = self._gauge("owned", "1 while this worker owns the partition.")
        what = "1 while this worker owns the partition and it is paused."
        self._paused = self._gauge("paused", what)
        self._known: dict[tuple[object, PartitionPlace], Any] = {}

    def _counter(self, name: str, what: str) -> Counter:
        return Counter(f"rink_streams_{name}", what, _LABELS, registry=self.registry)

    def _gauge(self, name: str, what: str) -> Gauge:
        return Gauge(f"rink_streams_{name}", what, _LABELS, registry=self.registry)

    def committed(self, place: PartitionPlace, step: CommitStep, seconds: float) -> None:
        """Count a commit and its events."""
        self._of(self._processed, place).inc(step.processed)
        if step.dead:
            self._of(self._dead, place).inc(step.dead)
        self._of(self._commits, place).observe(seconds)

    def retried(self, place: PartitionPlace) -> None:
        """Count a repeated call of a processor."""
        self._of(self._retried, place).inc()

    def waited(self, place: PartitionPlace) -> None:
        """Count a transient error."""
        self._of(self._transient, place).inc()

    def timed_out(self, place: PartitionPlace) -> None:
        """Count events that took longer than their timeout."""
        self._of(self._timeouts, place).inc()

    def paused(self, place: PartitionPlace, is_paused: bool) -> None:
        """Show whether a partition is paused."""
        self._of(self._paused, place).set(int(is_paused))

    def owned(self, place: PartitionPlace, owns: bool) -> None:
        """Show whether this worker owns a partition."""
        self._of(self._owned, place).set(int(owns))
        if not owns:
            self.lag(place, 0)  # the next owner shows the lag
            if (self._paused, place) in self._known:
                self.paused(place, False)

    def show(self, place: PartitionPlace) -> None:
        """Show all counters, since a rate needs a value before the first event."""
        for counter in (
            self._processed, self._dead, self._retried, self._transient, self._timeouts,
        ):  # fmt: skip
            self._of(counter, place)

    def handed_over(self, place: PartitionPlace, seconds: float) -> None:
        """Observe the time from a grant to its first take."""
        self._of(self._handovers, place).observe(seconds)

    def lag(self, place: PartitionPlace, events: int) -> None:
        """Show the lag of a partition."""
        self._of(self._lag, place).set(events)

    def _of(self, metric: M, place: PartitionPlace) -> M:
        """Return a metric with the labels of a partition.

        Histograms have the labels of the processor only. The result is cached, since a lookup costs
        as much as counting.
        """
        labelled: M | None = self._known.get((metric, place))
        if labelled is None:
            labels = (self._app, place.processor, place.stream, str(place.number))
            labelled = metric.labels(*labels[:3] if isinstance(metric, Histogram) else labels)
            self._known[metric, place] = labelled
        return labelled
