"""Carry out several rows at a time on one cluster.

A row mostly waits. What the rows share is the machine and the control plane. Each has nodes, a
namespace and a group of its own; all but those that break etcd share one etcd.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from types import TracebackType
from typing import Self

from kube_cluster import Cluster
from kube_parts import PartVerdict
from rollouts import carry_out
from scenarios import Scenario
from verdicts import Verdict, judged

from rink.testing import EtcdNode


class Lanes:
    """Run rows until the `with` ends.

    Args:
        cluster: where.
        count: so many rows at a time.
    """

    def __init__(self, cluster: Cluster, count: int) -> None:
        self._cluster = cluster
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="row")
        self._lock = threading.Lock()
        self._shared: EtcdNode | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Rows that are under way, as after Ctrl-C, fail when the cluster goes.
        self._pool.shutdown(wait=False, cancel_futures=True)

    def submit(self, rows: list[Scenario]) -> dict[str, Future[Verdict]]:
        """Begin rows when there is room, and return their future verdicts.

        The longest rows come first. A row that runs alone begins once all other rows have ended.
        """
        verdicts: dict[str, Future[Verdict]] = {}
        for row in sorted(rows, key=lambda row: (row.runs_alone, -row.weight)):
            before = list(verdicts.values()) if row.runs_alone else []
            verdicts[row.name] = self._pool.submit(self._one, row, before)
        return verdicts

    def submit_part(self, part: Callable[[Cluster], PartVerdict]) -> Future[PartVerdict]:
        """Begin a part that is no row; return its future verdict.

        It begins when there is room.
        """
        return self._pool.submit(part, self._cluster)

    def _one(self, scenario: Scenario, before: list[Future[Verdict]]) -> Verdict:
        wait(before)  # the pool began them earlier, so they do not wait for this one
        return judged(scenario, carry_out(self._cluster, scenario, self._etcd(scenario)))

    def _etcd(self, scenario: Scenario) -> EtcdNode:
        if scenario.has_own_etcd:
            return self._cluster.etcd()
        with self._lock:
            if self._shared is None:
                self._shared = self._cluster.etcd()
            return self._shared
