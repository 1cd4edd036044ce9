"""What a worker counts, for Prometheus."""

from __future__ import annotations

from functools import cached_property

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rink.streams.values import Place, Step

_LABELS = ("app", "processor", "stream", "partition")
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class _OfPartition:
    """What one partition adds to; each is looked up once, when it is needed first.

    Looking one up costs as much as the rest of a commit; and what nobody adds to is not shown.
    """

    def __init__(self, every: Metrics, place: Place) -> None:
        self._every = every
        self._labels = (every.app, place.processor, place.stream, str(place.number))

    @cached_property
    def processed(self) -> Counter:
        return self._every.processed.labels(*self._labels)

    @cached_property
    def dead(self) -> Counter:
        return self._every.dead.labels(*self._labels)

    @cached_property
    def retried(self) -> Counter:
        return self._every.retries.labels(*self._labels)

    @cached_property
    def lag(self) -> Gauge:
        return self._every.lags.labels(*self._labels)

    @cached_property
    def owned(self) -> Gauge:
        return self._every.owns.labels(*self._labels)

    @cached_property
    def commits(self) -> Histogram:
        return self._every.commits.labels(*self._labels[:3])

    @cached_property
    def handovers(self) -> Histogram:
        return self._every.handovers.labels(*self._labels[:3])


class Metrics:
    """The counters of one worker, in a registry of its own."""

    def __init__(self, app: str) -> None:
        self.app = app
        self.registry = CollectorRegistry()
        self.processed = self._counter("processed", "Events that were processed and committed.")
        self.dead = self._counter("dead", "Events that were given up.")
        self.retries = self._counter("retried", "Times that a processor was called again.")
        self.commits = Histogram(
            "rink_streams_commit_seconds", "From asking for a commit to its answer.",
            _LABELS[:3], buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self.handovers = Histogram(
            "rink_streams_handover_seconds", "From the grant of a partition to its first events.",
            _LABELS[:3], buckets=_SECONDS, registry=self.registry,
        )  # fmt: skip
        self.lags = self._gauge("lag", "Events that are not committed yet.")
        self.owns = self._gauge("owned", "1 while this worker owns the partition.")
        self._partitions: dict[Place, _OfPartition] = {}

    def _counter(self, name: str, what: str) -> Counter:
        return Counter(f"rink_streams_{name}", what, _LABELS, registry=self.registry)

    def _gauge(self, name: str, what: str) -> Gauge:
        return Gauge(f"rink_streams_{name}", what, _LABELS, registry=self.registry)

    def committed(self, place: Place, step: Step, seconds: float) -> None:
        """A commit was carried out."""
        of = self._of(place)
        of.processed.inc(step.processed)
        if step.dead:
            of.dead.inc(step.dead)
        of.commits.observe(seconds)

    def retried(self, place: Place) -> None:
        """A processor failed and is called again."""
        self._of(place).retried.inc()

    def owned(self, place: Place, owns: bool) -> None:
        """A partition came, or went."""
        of = self._of(place)
        of.owned.set(int(owns))
        if not owns:
            of.lag.set(0)  # whoever owns it tells how far it is behind

    def handed_over(self, place: Place, seconds: float) -> None:
        """A partition was taken over."""
        self._of(place).handovers.observe(seconds)

    def lag(self, place: Place, events: int) -> None:
        """How far a partition is behind."""
        self._of(place).lag.set(events)

    def _of(self, place: Place) -> _OfPartition:
        if place not in self._partitions:
            self._partitions[place] = _OfPartition(self, place)
        return self._partitions[place]
